"""Spans of documents as files: written and read back, and what they cannot be."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.spans_file import DocumentSpans, read_spans, write_spans

texts = st.text(st.characters(codec="utf-8"), max_size=20)
documents = st.lists(st.builds(DocumentSpans, st.text("abcäß017-_:", min_size=1, max_size=6), st.lists(texts)))


@settings(max_examples=40)
@given(rows=documents, name=st.sampled_from(["spans.jsonl", "spans.jsonl.gz"]))
def test_what_is_written_is_read_as_it_was(tmp_path_factory: pytest.TempPathFactory, rows, name: str) -> None:
    place = Place(str(tmp_path_factory.mktemp("spans") / name))
    assert write_spans(place, rows) == len(rows)
    assert [document for _, document in read_spans(place)] == rows
    assert [number for number, _ in read_spans(place)] == list(range(1, len(rows) + 1))


def test_the_layout_is_that_of_others(tmp_path: Path) -> None:
    write_spans(Place(str(tmp_path / "s.jsonl.gz")), [DocumentSpans("d1", ["one", "zwölf"])])
    lines = gzip.decompress((tmp_path / "s.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"doc_id": "d1", "spans": ["one", "zwölf"]}]
    (tmp_path / "theirs.jsonl").write_text('\n{"_id": 7, "spans": ["a"], "title": "b"}\n{"doc_id": "8", "spans": []}\n')
    found = list(read_spans(Place(str(tmp_path / "theirs.jsonl"))))
    assert found == [(2, DocumentSpans("7", ["a"])), (3, DocumentSpans("8", []))]


@pytest.mark.parametrize(
    "line",
    [
        '{"doc_id": "d", "spans": [[101, 102], [101, 102]]}',
        '{"doc_id": "d", "spans": "ab"}',
        '{"spans": ["a", "b"]}',
        '{"doc_id": true, "spans": ["a", "b"]}',
        '{"doc_id": "d", "spans": ["a", "\\ud800"]}',
        "d\ta",
    ],
)
def test_a_line_of_another_layout_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=r"x.jsonl, line 2: .*wanted is .\"doc_id\": …, \"spans\": \[text, …\]"):
        list(read_spans(Place(str(tmp_path / "x.jsonl"))))


TORN = gzip.compress(b'{"doc_id": "d", "spans": []}\n' * 999)[:-20]


@pytest.mark.parametrize("data", [b"\xff\xfe{}\n", TORN], ids=["no text", "torn"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(data)
    with pytest.raises(UserError, match=r"x.jsonl( holds text in UTF-16|: broken gzip stream)"):
        list(read_spans(Place(str(tmp_path / "x.jsonl"))))
