"""A typed query finds what the same query of the collection finds, whatever views the encoder gives."""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.encoders.representation import Representation
from midmask.retrieve import ranked
from midmask.retrieve.encode import EncodeConfig, encode
from midmask.retrieve.search import SearchConfig, search
from midmask.retrieve.searcher import Searcher
from midmask.retrieve.text_encoder import TextEncoder
from tests.support.retrieve.collection import REPRESENTATIONS, encoded, made, write_bi_encoder


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
