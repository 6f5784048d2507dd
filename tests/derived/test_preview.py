"""What people are shown of derived artifacts."""

from midmask.artifact import Artifact, Place
from midmask.derived.preview import preview
from midmask.derived.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import SPANS
from tests.support.derived.documents import text_of, titled


def test_three_documents_with_their_spans_and_queries(inputs, tmp_path):
    place = Place(str(tmp_path / "spans"))
    result = SPANS(SpansConfig(span_length=24, short_share=0.0), inputs, place)
    _, *documents = preview("spans", Artifact(place, {"result": result}), inputs["tokens"].place).split("\n\n")
    assert [block.split(":")[0] for block in documents] == ["d1", "d3", "d4"], "others have one span"
    assert f"tokens) {text_of(1).lower()[:20]}" in documents[0] and "overlap" in documents[0]
    place = Place(str(tmp_path / "queries"))
    result = PSEUDO_QUERIES(PseudoQueriesConfig(source="titles"), inputs, place)
    _, *documents = preview("pseudo_queries", Artifact(place, {"result": result}), inputs["tokens"].place).split("\n\n")
    assert [block.split(":")[0] for block in documents] == ["d1", "d2", "d3"], "d0 has no title"
    assert all(f"query   {titled(n)}" in block for n, block in enumerate(documents, start=1))
