"""Ids of passages: whatever a file is called, the id has no white space and states the file and the place again."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.corpora.provenance import Provenance, provenance_of

names = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    st.binary(min_size=1).filter(lambda name: b"\0" not in name).map(os.fsdecode),
)
spans = st.tuples(st.integers(0, 10**9), st.integers(1, 10**6)).map(lambda span: (span[0], span[0] + span[1]))
rows = st.integers(1, 10**9)


@given(names, spans, rows)
def test_an_id_gives_its_provenance_back(name: str, span: tuple[int, int], row: int) -> None:
    for one in (Provenance(name, *span), Provenance(name, row=row), Provenance(name, *span, row)):
        assert len(one.doc_id.split()) == 1 and one.doc_id.encode() and one.doc_id.count("#") == 1
        assert provenance_of(one.doc_id) == one


@pytest.mark.parametrize(
    ("doc_id", "wanted"),
    [
        ("guide/install.md#120-860", Provenance("guide/install.md", 120, 860)),
        ("faq.csv#12", Provenance("faq.csv", row=12)),
        ("faq.csv#12:0-640", Provenance("faq.csv", 0, 640, 12)),
        ("a%2541.txt#0-5", Provenance("a%41.txt", 0, 5)),
        ("my%20notes%231.txt#0-5", Provenance("my notes#1.txt", 0, 5)),
        *((other, None) for other in ("d12", "a.md#", "#1-2", "a.md#0", "a.md#5-5", "a.md#1:", "a.md#x-y", "a b#1-2")),
    ],
)
def test_ids_are_written_as_documented(doc_id: str, wanted: Provenance | None) -> None:
    assert provenance_of(doc_id) == wanted
    assert wanted is None or wanted.doc_id == doc_id
