"""Reciprocal rank fusion, against sums made query by query, and its place between searches and measures."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from midmask.artifact import Artifact, Place
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.plan import plan
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from midmask.retrieve.fusion import FuseConfig, fuse, fuse_lists
from tests.support.unread import Unread

SEARCHED = {"splits": {"dev": {"queries": 9, "ranked": 0, "empty_slots": 2}}, "read": {"passages": {"length": 48}}}


def random_list(seed: int, *, queries: int = 9, passages: int = 30, deep: int = 12) -> pa.Table:
    """Some queries with `deep` passages each, of which many scores are equal."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"q{query}", f"d{doc:02d}", float(rng.integers(4)))
        for query in range(queries)
        for doc in rng.permutation(passages)[:deep]
    ]
    names = ("query_id", "doc_id", "score")
    return ranked.order(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))))


def fused_by_hand(encoder: pa.Table, bm25: pa.Table, share: float, depth: int) -> dict[tuple[str, str], float]:
    scores: dict[str, dict[str, float]] = {}
    for found, weight in ((encoder, 1 - share), (bm25, share)):
        for row in found.to_pylist():
            own = scores.setdefault(row["query_id"], {})
            own[row["doc_id"]] = own.get(row["doc_id"], 0.0) + weight / (60 + row["rank"])
    lists = {
        query: sorted(own, key=lambda doc, own=own: (-np.float32(own[doc]), doc))[:depth]
        for query, own in sorted(scores.items())
    }
    return {(query, doc): scores[query][doc] for query, docs in lists.items() for doc in docs}


@pytest.mark.parametrize("share", [0.5, 0.1, 0.8])
@pytest.mark.parametrize("depth", [5, 100])
def test_a_passage_counts_by_its_rank_in_either_list(share: float, depth: int) -> None:
    encoder, bm25 = random_list(1), random_list(2, queries=8)
    found = fuse(encoder, bm25, share, depth)
    pairs = list(zip(found["query_id"].to_pylist(), found["doc_id"].to_pylist(), strict=True))
    expected = fused_by_hand(encoder, bm25, share, depth)
    assert pairs == list(expected)
    assert found["score"].to_pylist() == pytest.approx(list(expected.values()), rel=1e-6)
    assert found.schema == ranked.SCHEMA


def test_the_step_writes_a_ranked_list_and_says_how_far_the_encoder_read(tmp_path: Path) -> None:
    lists, inputs = {"encoder": random_list(3), "bm25": random_list(4)}, {}
    for role, table in lists.items():
        ranked.write(Place(str(tmp_path / role / "ranked" / "dev.parquet")), [table])
        inputs[role] = Artifact(Place(str(tmp_path / role)), {"result": SEARCHED})
    result = fuse_lists(FuseConfig(split="dev", depth=10, bm25_share=0.5), inputs, Place(str(tmp_path / "out")))
    found = ranked.read(Place(str(tmp_path / "out" / "ranked" / "dev.parquet")))
    assert found.equals(fuse(lists["encoder"], lists["bm25"], 0.5, 10))
    assert result == {
        "splits": {"dev": {"queries": 9, "ranked": len(found), "empty_slots": 2}},
        "read": SEARCHED["read"],
    }


def test_an_evaluation_with_it_measures_the_fused_list_and_bm25_alone_stays_as_it_was() -> None:
    recipe = RECIPES["none"]()
    fused = override(recipe, {"evaluation.bm25_share": 0.5}).evaluation
    planned = plan(recipe, Unread())
    alone, both = planned.evaluation(recipe.evaluation), planned.evaluation(fused)
    step = both.inputs["ranked"]
    assert step.name == "fuse" and step.inputs["encoder"] == alone.inputs["ranked"]
    assert step.inputs["bm25"] == planned.bm25_evaluation(recipe.evaluation).inputs["ranked"]
    assert planned.bm25_evaluation(fused) == planned.bm25_evaluation(recipe.evaluation)


def test_both_lists_are_as_deep_and_of_the_same_queries() -> None:
    changes = {"evaluation.bm25_share": 0.5, "evaluation.depth": 20, "evaluation.max_queries": 7}
    recipe = apply_changes(RECIPES["none"](), changes)
    step = plan(recipe, Unread()).evaluation(recipe.evaluation).inputs["ranked"]
    bm25, encoder = step.inputs["bm25"].config, step.inputs["encoder"].config
    assert (bm25.depth, encoder.depth, step.config.depth) == (21, 21, 21)  # type: ignore[attr-defined]
    assert bm25.max_queries == step.inputs["encoder"].inputs["queries"].config.max_queries == 7  # type: ignore[attr-defined]
