"""Searches in one process, by all dimensions or the first; typed queries; and two lists joined."""

from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.core.config import identity_of, override
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION, passage_blocks
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.ranked import FuseConfig, Fusion, fuse, fuse_lists
from midmask.retrieve.search import Search, SearchConfig, search
from midmask.retrieve.searcher import Searcher
from midmask.retrieve.units import SearchWorker
from midmask.retrieve.views import load_array
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.benchmark.tiny import Unread
from tests.support.retrieve.collection import REPRESENTATIONS, encoded, made, write_bi_encoder

CONFIG = SearchConfig(depth=25)


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


def test_a_killed_search_goes_on_from_the_blocks_it_has(inputs, vectors, out, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("midmask.retrieve.searched_queries.QUERY_BLOCK", 10)
    small = encoded(inputs, Place(str(tmp_path / "small")))
    whole = Place(str(tmp_path / "whole"))
    search(CONFIG, small, whole)
    work = Search(CONFIG, small, out)
    (shard,) = work.shards(1)
    assert work.begin() == 3
    assert SearchWorker(work, shard).search(1) == 1 and SearchWorker(work, shard).search(1) == 0
    (target,) = (out.local() / "partial").iterdir()
    arrays = np.load(target)
    np.savez(target, **{**arrays, "scores": arrays["scores"] + np.float32(1)})
    search(CONFIG, small, out)
    both = [ranked.read(place / "ranked" / "train.parquet") for place in (whole, out)]
    gained = both[1]["score"].to_numpy() - both[0]["score"].to_numpy()
    assert np.array_equal(gained > 0.5, np.repeat([False, True, False], 250)), "the finished block was searched again"
    assert out.names() == ["ranked"], "partial results are not kept"


WIDTH = 24


def cut(encoding: Artifact, *, unit: bool) -> np.ndarray:
    names = sorted((encoding.place / "dense").names())
    first = np.concatenate([load_array(encoding.place / "dense" / name) for name in names])[:, :WIDTH].astype(float)
    return first / np.linalg.norm(first, axis=1, keepdims=True) if unit else first


@pytest.mark.parametrize("unit", [False, True])
def test_a_search_by_fewer_dimensions_is_a_sort_by_them(inputs, out, tmp_path, unit) -> None:
    root, representation = Place(str(tmp_path)), Representation(dense="mean", normalise=unit)
    vectors = encoded({**inputs, "model": write_bi_encoder(root / "m", inputs["tokens"], representation)}, root)
    result = search(SearchConfig(depth=10, width=WIDTH), vectors, out)
    scores = cut(vectors["queries"], unit=unit) @ cut(vectors["passages"], unit=unit).T
    found = ranked.read(out / "ranked" / "train.parquet")
    listed = found["score"].to_numpy().reshape(-1, 10)
    np.testing.assert_allclose(listed, -np.sort(-scores, axis=1)[:, :10], rtol=1e-5, atol=1e-6)
    blocks = passage_blocks(inputs["tokens"].place)
    places = {name: n for n, name in enumerate(n for b in blocks for n in b.read(["doc_id"])["doc_id"].to_pylist())}
    names = pq.read_table((vectors["queries"].place / SELECTION).uri)["query_id"].to_pylist()
    rows = {name: n for n, name in enumerate(names)}
    pairs = zip(found["query_id"].to_pylist(), found["doc_id"].to_pylist(), strict=True)
    own = [scores[rows[query], places[passage]] for query, passage in pairs]
    np.testing.assert_allclose(found["score"].to_numpy(), own, rtol=1e-5, atol=1e-6)
    assert result["bytes_per_passage"] == 4 * WIDTH


@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_a_typed_query_is_ranked_as_the_collections_own(kind: str, inputs: dict[str, Artifact], tmp_path: Path) -> None:
    """Scores, documents and their texts; the collection has several files and row groups."""
    root, corpus = Place(str(tmp_path)), inputs["corpus"].place
    model = write_bi_encoder(root / "model", inputs["tokens"], REPRESENTATIONS[kind])
    vectors = encoded({**inputs, "model": model}, root)
    listed = made(search, SearchConfig(depth=12), vectors, root / "search")
    expected = ranked.read(listed.place / "ranked" / "train.parquet").to_pylist()
    asked = {row["query_id"]: row["text"] for row in pq.read_table((corpus / "queries.parquet").uri).to_pylist()}
    texts = {row["doc_id"]: row["text"] for row in pq.read_table((corpus / "docs").uri).to_pylist()}
    tokens = Artifact(inputs["tokens"].place, {**inputs["tokens"].record, "config": {"query_length": 8}})
    searcher = Searcher(model=model, corpus=inputs["corpus"], tokens=tokens, passages=vectors["passages"])
    names = ["q1", "q22", "q39"]
    for name, hits in zip(names, searcher.search([asked[name] for name in names], k=12), strict=True):
        own = [row for row in expected if row["query_id"] == name]
        assert [hit.doc_id for hit in hits] == [row["doc_id"] for row in own]
        assert [hit.score for hit in hits] == pytest.approx([row["score"] for row in own], rel=1e-6)
        assert [hit.text for hit in hits] == [texts[row["doc_id"]] for row in own]


def test_a_query_is_cut_and_prompted_as_the_tokens_are(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    """With a prompt of three words, a query is what these words and its own make together."""
    root = Place(str(tmp_path))
    passages = made(encode, EncodeConfig(side="passages"), inputs, root / "passages")
    given = {"model": inputs["model"], "corpus": inputs["corpus"], "passages": passages}

    def first(query: str, length: int | None = None, **config: object) -> list[tuple[str, float]]:
        tokens = Artifact(inputs["tokens"].place, {**inputs["tokens"].record, "config": {"query_length": 32, **config}})
        hits = Searcher(tokens=tokens, query_length=length, **given).search([query], k=5)[0]
        return [(hit.doc_id, hit.score) for hit in hits]

    assert first("gab noc", query_prompt="abc de f ") == first("abc de f gab noc") != first("gab noc")
    long = "abc de f gab noc pal " * 4
    assert first(long, length=10) == first(long, query_length=10) != first(long)


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
    drawn = ({f"d{doc:02d}": float(rng.integers(4)) for doc in rng.permutation(30)[:12]} for _ in range(queries))
    return as_list({f"q{n}": own for n, own in enumerate(drawn)})


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
