"""The search step in one process, by all dimensions and by the first, and a searcher of typed queries."""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.retrieve import encode as encoding
from midmask.retrieve import ranked
from midmask.retrieve.blocks import SELECTION, passage_blocks
from midmask.retrieve.coded_tokens import load_array
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.search import Search, SearchConfig, SearchWorker, search
from midmask.retrieve.searcher import Searcher
from midmask.retrieve.text_encoder import TextEncoder
from tests.support.retrieve.collection import REPRESENTATIONS, encoded, made, write_bi_encoder

CONFIG = SearchConfig(depth=25)


@pytest.fixture(scope="module")
def vectors(inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return encoded(inputs, Place(str(tmp_path_factory.mktemp("encoded"))))


def test_a_killed_search_goes_on_from_the_blocks_it_has(inputs, vectors, out, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(encoding, "QUERY_BLOCK", 10)
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


def test_encodings_that_do_not_belong_together_are_refused(inputs, vectors, out, tmp_path: Path):
    other = {**inputs, "model": Artifact(inputs["model"].place, {"fingerprint": "another"})}
    config = encoding.EncodeConfig(side="queries", split="dev")
    strange = made(encoding.encode, config, other, Place(str(tmp_path / "strange")))
    with pytest.raises(UserError, match=r"made by the encoder encoder, the queries .* by another; encode both"):
        search(CONFIG, {**vectors, "queries": strange}, out)
    tokens = Artifact(inputs["tokens"].place, {"fingerprint": "others"})
    with pytest.raises(UserError, match=r"was encoded from the tokens tokens, not from .* \(others\)"):
        search(CONFIG, {**vectors, "tokens": tokens}, out)
    assert out.names() == []


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


def test_an_encoder_keeps_as_many_words_as_its_folder_says(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    """Of a query and of a passage; `terms` asks for fewer."""
    trained = Representation(dense=None, lexical="splade", query_terms=5, passage_terms=9)
    model = write_bi_encoder(Place(str(tmp_path)), inputs["tokens"], trained)
    rows = [np.arange(5, 25), np.arange(40, 52)]

    def words(side: Literal["query", "passage"], terms: int | None = None) -> list[int]:
        views = TextEncoder(model, inputs["tokens"], side, terms=terms).encode(rows)
        assert views.lexical is not None
        return list(np.diff(views.lexical.offsets))

    assert (words("query"), words("passage"), words("passage", 3)) == ([5, 5], [9, 9], [3, 3])
