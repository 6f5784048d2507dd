"""Both ways to join two lists, against sums made query by query, and their place between searches and measures."""

from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.identity import identity_of, override
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from midmask.retrieve.fusion import FuseConfig, Fusion, fuse, fuse_lists
from tests.support.unread import Unread

SEARCHED = {"splits": {"dev": {"queries": 9, "ranked": 0, "empty_slots": 2}}, "read": {"passages": {"length": 48}}}


FUSIONS: tuple[Fusion, ...] = get_args(Fusion)


def as_list(scores: dict[str, dict[str, float]]) -> pa.Table:
    """A ranked list of query -> document -> score."""
    rows = [(query, doc, score) for query, own in scores.items() for doc, score in own.items()]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, ranked.SCHEMA.types[:3], strict=True)]
    return ranked.order(pa.table(arrays, names=ranked.SCHEMA.names[:3]))


def random_list(seed: int, *, queries: int = 9) -> pa.Table:
    """Some queries with 12 of 30 passages each, of which many scores are equal."""
    rng = np.random.default_rng(seed)
    return as_list(
        {f"q{n}": {f"d{doc:02d}": float(rng.integers(4)) for doc in rng.permutation(30)[:12]} for n in range(queries)}
    )


def by_document(found: pa.Table, query: str) -> dict[str, float]:
    """Document -> score, in the order of the list."""
    return {row["doc_id"]: row["score"] for row in found.to_pylist() if row["query_id"] == query}


def fused_by_hand(
    encoder: pa.Table, bm25: pa.Table, share: float, depth: int, fusion: Fusion
) -> dict[tuple[str, str], float]:
    """In Python's floats; for `convex`, each query's scores are scaled from 0 to 1."""
    scores: dict[str, dict[str, float]] = {}
    for found, weight in ((encoder, 1 - share), (bm25, share)):
        for row in found.to_pylist():
            listed, own = by_document(found, row["query_id"]).values(), scores.setdefault(row["query_id"], {})
            low, high = min(listed), max(listed)
            part = (row["score"] - low) / (high - low) if high > low else 1.0
            part = 1 / (60 + row["rank"]) if fusion == "rrf" else part
            own[row["doc_id"]] = own.get(row["doc_id"], 0.0) + weight * part
    best: dict[tuple[str, str], float] = {}
    for query, own in sorted(scores.items()):
        order = sorted(own, key=lambda doc, own=own: (-np.float32(own[doc]), doc))[:depth]
        best |= {(query, doc): own[doc] for doc in order}
    return best


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize(("share", "depth"), [(0.1, 5), (0.8, 100)])
def test_a_passage_counts_by_its_rank_or_its_score_in_either_list(share: float, depth: int, fusion: Fusion) -> None:
    """BM25 finds nothing for one of the queries."""
    encoder, bm25 = random_list(1), random_list(2, queries=8)
    found = fuse(encoder, bm25, share, depth, fusion)
    pairs = list(zip(found["query_id"].to_pylist(), found["doc_id"].to_pylist(), strict=True))
    expected = fused_by_hand(encoder, bm25, share, depth, fusion)
    assert pairs == list(expected)
    assert found["score"].to_pylist() == pytest.approx(list(expected.values()), rel=1e-6)
    assert found.schema == ranked.SCHEMA


def test_scores_are_scaled_in_double_precision() -> None:
    """Neither difference of these scores is a float32."""
    encoder = as_list({"q": {"a": 2.0**25, "b": 2.0**24 + 2, "c": 1.0}})
    found = by_document(fuse(encoder, as_list({}), 0.5, 9, "convex"), "q")
    assert found == {"a": 0.5, "b": np.float32(0.5 * (2**24 + 1) / (2**25 - 1)), "c": 0.0}


def test_one_passage_and_equal_scores_count_in_full() -> None:
    encoder = as_list({"one": {"a": -7.5}, "equal": {"a": 3.0, "b": 3.0}, "alone": {"a": 2.0, "b": 1.0}})
    bm25 = as_list({"one": {"b": 4.0}, "equal": {"b": 9.0, "c": 5.0, "d": 1.0}})
    found = fuse(encoder, bm25, 0.25, 9, "convex")
    assert by_document(found, "one") == {"a": 0.75, "b": 0.25}
    assert by_document(found, "equal") == {"b": 1.0, "a": 0.75, "c": 0.125, "d": 0.0}
    assert by_document(found, "alone") == {"a": 0.75, "b": 0.0}


@pytest.mark.parametrize("fusion", FUSIONS)
def test_the_step_writes_a_ranked_list_and_says_how_far_the_encoder_read(fusion: Fusion, tmp_path: Path) -> None:
    lists, inputs = {"encoder": random_list(3), "bm25": random_list(4)}, {}
    for role, table in lists.items():
        ranked.write(Place(str(tmp_path / role / "ranked" / "dev.parquet")), [table])
        inputs[role] = Artifact(Place(str(tmp_path / role)), {"result": SEARCHED})
    config = FuseConfig(split="dev", depth=10, bm25_share=0.5, fusion=fusion)
    result = fuse_lists(config, inputs, Place(str(tmp_path / "out")))
    found = ranked.read(Place(str(tmp_path / "out" / "ranked" / "dev.parquet")))
    assert found.equals(fuse(lists["encoder"], lists["bm25"], 0.5, 10, fusion))
    splits = {"dev": {"queries": 9, "ranked": len(found), "empty_slots": 2}}
    assert result == {"splits": splits, "read": SEARCHED["read"]}


@pytest.mark.parametrize("fusion", FUSIONS)
def test_an_evaluation_with_it_measures_the_fused_list_and_bm25_alone_stays_as_it_was(fusion: Fusion) -> None:
    recipe = RECIPES["none"]()
    fused = override(recipe, {"evaluation.bm25_share": 0.5, "evaluation.fusion": fusion}).evaluation
    planned = plan(recipe, Unread())
    alone, both = planned.evaluation(recipe.evaluation), planned.evaluation(fused)
    step = both.inputs["ranked"]
    assert step.name == "fuse" and step.inputs["encoder"] == alone.inputs["ranked"]
    assert step.config.fusion == fusion  # type: ignore[attr-defined]
    assert step.inputs["bm25"] == planned.bm25_evaluation(recipe.evaluation).inputs["ranked"]
    assert planned.bm25_evaluation(fused) == planned.bm25_evaluation(recipe.evaluation)


def test_joining_by_ranks_has_the_identity_of_before_and_by_scores_another() -> None:
    """Stores have lists that were joined before there was a choice."""
    given = {"split": "dev", "depth": 101, "bm25_share": 0.5}
    assert identity_of(FuseConfig(**given)) == given  # type: ignore[arg-type]
    assert identity_of(FuseConfig(**given, fusion="convex")) == {**given, "fusion": "convex"}  # type: ignore[arg-type]
    assert "fusion" not in identity_of(EvaluateConfig(bm25_share=0.5))


def test_a_fusion_of_one_list_is_refused() -> None:
    with pytest.raises(UserError, match=r"fusion = convex with bm25_share = 0: .* set evaluation\.bm25_share=0\.5"):
        override(RECIPES["none"](), {"evaluation.fusion": "convex"})
    with pytest.raises(UserError, match=r"evaluation\.fusion = .*borda.*'rrf' or 'convex'"):
        override(RECIPES["none"](), {"evaluation.fusion": "borda", "evaluation.bm25_share": 0.5})
