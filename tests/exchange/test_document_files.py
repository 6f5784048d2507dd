"""Spans and token ids of documents as files, and rows for pgvector: read in all forms, and anything else is refused."""

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.pgvector.rows import MOST_WORDS, encode_rows
from midmask.exchange.pgvector.upload import is_same
from midmask.exchange.spans_file import DocumentSpans, read_spans, write_spans
from midmask.exchange.token_files import read_token_files
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views

ROWS = [[5, 6, 7], [8], [], [9, 9]]


def read(folder: Path) -> tuple[list[str], list[list[int]]]:
    """All ids and rows of a folder; that blocks say which rows they are is checked on the way."""
    names: list[str] = []
    rows: list[list[int]] = []
    for file, blocks in itertools.groupby(read_token_files(Place(str(folder))), key=lambda block: block.file):
        place = 0
        assert (folder / file).is_file()
        for block in blocks:
            assert block.first == place
            place += len(block.lengths)
            names += block.doc_ids.to_pylist()
            flat = iter(block.flat.tolist())
            rows += [list(itertools.islice(flat, length)) for length in block.lengths.tolist()]
            assert not list(flat)
    return names, rows


def stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def file(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


WRITERS: dict[str, tuple[str, Callable[[Path, pa.Table], None]]] = {
    "parquet": ("x.parquet", lambda path, table: pq.write_table(table, path, row_group_size=3)),
    "stream": ("data-00000-of-00001.arrow", stream),
    "file": ("x.arrow", file),
}
KINDS = [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.uint16()), pa.list_(pa.int8())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", WRITERS)
def test_lists_of_any_integers_are_read_from_any_layout(name: str, kind: pa.DataType, tmp_path: Path) -> None:
    end, write = WRITERS[name]
    columns = {"text": ["a", "b", "c", "d"], "id": [4, 3, 2, 1], "token_ids": pa.array(ROWS, kind)}
    write(tmp_path / end, pa.table(columns))
    assert read(tmp_path) == (["4", "3", "2", "1"], ROWS)


def test_rows_of_one_length_rows_that_are_null_and_slices(tmp_path: Path) -> None:
    fixed = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    file(tmp_path / "a.arrow", pa.table({"input_ids": fixed}))
    stream(tmp_path / "b.arrow", pa.table({"input_ids": ROWS, "_id": ["w", None, "y", "z"]}).slice(1))
    names = ["a.arrow:0", "a.arrow:1", "a.arrow:2", "b.arrow:0", "y", "z"]
    assert read(tmp_path) == (names, [[1, 2], [], [3, 4], *ROWS[1:]])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"ids": ROWS}, r"no list of token ids; its columns are ids \(list<.*int64>\)"),
    "texts": ({"input_ids": ["5 6 7"]}, r"no list of token ids; its columns are input_ids \(string\)"),
    "floats": ({"input_ids": [[0.5]]}, "no list of token ids"),
    "both": ({"input_ids": ROWS, "token_ids": ROWS}, "both input_ids and token_ids"),
    "a missing id": ({"input_ids": [[5], [5, None]]}, r"x.parquet: a token id is missing \(null\) .*rows 0 to 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_list_of_ids_is_refused(case: str, tmp_path: Path) -> None:
    columns, message = REFUSED[case]
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=message):
        read(tmp_path)


def test_no_files_half_files_and_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there are no token files in it; wanted are \.parquet or \.arrow"):
        read(tmp_path / "nowhere")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(UserError, match="name the folder of one, such as its train/"):
        read(tmp_path)
    for end, write in WRITERS.values():
        write(tmp_path / end, pa.table({"input_ids": ROWS}))
        (tmp_path / end).write_bytes((tmp_path / end).read_bytes()[:-40])
        with pytest.raises(UserError, match=rf"{end}: it cannot be read \("):
            read(tmp_path)
        with pytest.raises(UserError, match="it cannot be read"):
            read(tmp_path / end)
        (tmp_path / end).unlink()


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


OTHER_LAYOUTS = [
    '{"doc_id": "d", "spans": [[101, 102], [101, 102]]}',
    '{"doc_id": "d", "spans": "ab"}',
    '{"spans": ["a", "b"]}',
    '{"doc_id": true, "spans": ["a", "b"]}',
    '{"doc_id": "d", "spans": ["a", "\\ud800"]}',
    "d\ta",
]


@pytest.mark.parametrize("line", OTHER_LAYOUTS)
def test_a_line_of_another_layout_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=r"x.jsonl, line 2: .*wanted is .\"doc_id\": …, \"spans\": \[text, …\]"):
        list(read_spans(Place(str(tmp_path / "x.jsonl"))))


def test_texts_and_vectors_that_pgvector_cannot_store() -> None:
    """A NUL character has a stand-in; more words than it holds are refused, with the passage's name."""
    passage = pa.table({"doc_id": ["a"], "title": pa.array([None], pa.string()), "text": ["one\0two"]})
    written = encode_rows(passage, Views(np.ones((1, 2), np.float32), None))
    assert "one\ufffdtwo".encode() in written and b"one\0two" not in written
    many = SparseRows.top(np.ones((1, MOST_WORDS + 1), np.float32), None)
    with pytest.raises(UserError, match=r"passage 'a' has 16,001 words"):
        encode_rows(passage, Views(None, many))


@pytest.mark.parametrize(
    ("own", "theirs", "same"),
    [
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("b", 2.0)], True),
        ([("a", 3.0), ("b", 2.0), ("c", 2.0)], [("a", 3.0), ("c", 2.0), ("b", 2.0)], True),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("c", 2.0)], True),
        ([("a", 3.0), ("b", 2.0)], [("b", 3.0), ("a", 2.0)], False),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("b", 2.1)], False),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0)], False),
        ([], [], True),
    ],
)
def test_lists_are_the_same_but_for_ties(own, theirs, same: bool) -> None:
    assert is_same(own, theirs) is same
