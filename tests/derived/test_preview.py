"""What people are shown of derived artifacts."""

from pathlib import Path

import pyarrow.parquet as pq

from midmask.artifact import Artifact, Place
from midmask.derived.preview import preview
from midmask.derived.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import SPANS
from tests.support.derived.documents import text_of, titled


def test_three_documents_with_their_spans_in_words(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    result = SPANS(SpansConfig(span_length=24, short_share=0.0), inputs, place)
    text = preview("spans", Artifact(place, {"result": result}), inputs["tokens"].place)
    counts, *documents = text.split("\n\n")
    assert f"{result['spans']:,}" in counts and "documents of one span" in counts
    rows = pq.read_table(tmp_path / "spans", columns=["doc_id"])["doc_id"].to_pylist()
    assert [block.split(":")[0] for block in documents] == list(dict.fromkeys(rows))[:3]
    first = text_of(1).lower()[:20]
    assert f"tokens) {first}" in documents[0] and "overlap" in documents[0]


def test_three_passages_with_their_queries(inputs: dict[str, Artifact], tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    result = PSEUDO_QUERIES(PseudoQueriesConfig(source="titles"), inputs, place)
    text = preview("pseudo_queries", Artifact(place, {"result": result}), inputs["tokens"].place)
    documents = text.split("\n\n")[1:]
    assert [block.split(":")[0] for block in documents] == ["d1", "d2", "d3"], "d0 has no title"
    assert all(f"query   {titled(n)}" in block for n, block in enumerate(documents, start=1))
