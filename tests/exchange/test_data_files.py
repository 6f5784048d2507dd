"""Vectors, scores, spans and token ids as files, and rows for pgvector: in all forms; nothing in a pickle is run."""

import gzip
import itertools
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.errors import UserError
from midmask.exchange.pgvector.rows import MOST_WORDS, encode_rows
from midmask.exchange.pgvector.upload import is_same
from midmask.exchange.pickles import read_pickle
from midmask.exchange.score_files import read_pickled_scores
from midmask.exchange.spans_file import DocumentSpans, read_spans, write_spans
from midmask.exchange.token_files import read_token_files
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views

ROWS = [[5, 6, 7], [8], [], [9, 9]]


def read(folder: Path) -> tuple[list[str], list[list[int]]]:
    """All ids and rows of a folder; that blocks say which rows they are is checked on the way."""
    names, rows = [], []
    for file, blocks in itertools.groupby(read_token_files(Place(str(folder))), key=lambda block: block.file):
        place = 0
        assert (folder / file).is_file()
        for block in blocks:
            assert block.first == place
            place += len(block.lengths)
            names += block.doc_ids.to_pylist()
            rows += [row.tolist() for row in np.split(block.flat, np.cumsum(block.lengths)[:-1])]
    return names, rows


def ipc(begin: Callable[..., Any], path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, begin(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


stream, file = partial(ipc, pa.ipc.new_stream), partial(ipc, pa.ipc.new_file)


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
        ([("a", 3.0), ("b", 2.0)], [("c", 3.0), ("b", 2.0)], False),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0), ("b", 2.1)], False),
        ([("a", 3.0), ("b", 2.0)], [("a", 3.0)], False),
        ([], [], True),
    ],
)
def test_lists_are_the_same_but_for_ties(own, theirs, same: bool) -> None:
    assert is_same(own, theirs) is same


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
ids_of = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)


@st.composite
def named(draw: st.DrawFn) -> tuple[list[str], NDArray[np.float32]]:
    names = draw(st.lists(ids_of, min_size=1, max_size=7, unique=True))
    return names, draw(hnp.arrays(np.float32, (len(names), draw(st.integers(1, 5))), elements=finite))


@settings(max_examples=60)
@given(
    found=named(),
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
    dtype=st.sampled_from(["<f4", ">f4", "<f8", "<f2"]),
    order=st.sampled_from("CF"),
    kind=st.sampled_from(["texts", "integers", "array of texts", "array of integers", "numpy scalars"]),
)
def test_a_pickle_of_vectors_and_ids_is_read_as_pickle_would(tmp_path_factory, found, protocol, dtype, order, kind):
    names, vectors_ND = found
    with np.errstate(over="ignore"):
        array = np.array(np.clip(vectors_ND, -6e4, 6e4), dtype=dtype, order=order)  # type: ignore[call-overload]
    numbers = list(range(len(names)))
    ids: Any = {
        "texts": names,
        "integers": numbers,
        "array of texts": np.array([f"d{number}" for number in numbers]),
        "array of integers": np.array(numbers),
        "numpy scalars": [np.int64(number) for number in numbers],
    }[kind]
    path = tmp_path_factory.mktemp("vectors") / "corpus.pkl"
    path.write_bytes(pickle.dumps((array, ids), protocol=protocol))
    theirs, their_ids = pickle.loads(path.read_bytes())
    ours, our_ids = read_pickle(Place(str(path)))
    assert list(getattr(our_ids, "values", our_ids)) == list(their_ids)
    assert ours.values.dtype.newbyteorder("=") == theirs.dtype.newbyteorder("=")
    np.testing.assert_array_equal(ours.values, theirs)


numbers = st.floats(-50, 50, width=32)
tables = st.dictionaries(
    st.text("q01", min_size=1), st.dictionaries(st.text("d23", min_size=1), numbers, min_size=1), max_size=5
)


@settings(max_examples=40)
@given(tables, st.sampled_from([float, np.float32, np.float64, int, np.int64]), st.integers(0, 5), st.booleans())
def test_scores_are_read_numpy_numbers_among_them(tmp_path_factory, scores, kind, protocol, zipped) -> None:
    held = {query: {doc: kind(score) for doc, score in own.items()} for query, own in scores.items()}
    data, path = pickle.dumps(held, protocol), tmp_path_factory.mktemp("scores") / "scores.pkl"
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert list(read_pickled_scores(Place(str(path)))) == [
        (query, doc, float(score)) for query, own in held.items() for doc, score in own.items()
    ]


OTHERS: list[tuple[object, str]] = [
    ([1], "a pickled list"),
    ({"q": [1.0]}, "query 'q' has a list"),
    ({"q": {"d": "1"}}, "'1' is not a finite score"),
    ({"q": {"d": float("nan")}}, "nan is not a finite score"),
]


@pytest.mark.parametrize(("value", "said"), OTHERS)
def test_other_contents_than_scores_are_named(tmp_path: Path, value: object, said: str) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(UserError, match=said):
        list(read_pickled_scores(Place(str(tmp_path / "x.pkl"))))


ran: list[str] = []


def boom(*inputs: object) -> None:
    ran.append("boom")


class Trap:
    """Runs code when it is unpickled: by a function, or by a state."""

    def __init__(self, how: Callable[..., object], *inputs: object, state: object = None) -> None:
        self.reduced = (how, inputs) if state is None else (how, inputs, state)

    def __reduce__(self) -> Any:
        return self.reduced


ONE = np.ones((1, 2), np.float32)
RECONSTRUCT = ONE.__reduce__()[0]
TRAPS: dict[str, Any] = {
    "a function of ours": (ONE, [Trap(boom)]),
    "a builtin": (ONE, [Trap(eval, "1 + 1")]),
    "in the place of the array": (Trap(boom), ["a"]),
    "numpy's file reader": (ONE, [Trap(np.load, "x.npy", None, True)]),
    "a state that is no bytes": (ONE, [Trap(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (1,), "O", False, [boom]))]),
    "an array of objects": (np.array([[boom]], dtype=object), ["a"]),
    "elements with fields": (np.zeros(2, dtype=[("a", "f4")]), ["a", "b"]),
    "an object": (ONE, [Path("a")]),
    "among scores": {"q": {"d": Trap(boom)}},
    "as a name of scores": {"q": {Trap(boom): 1.0}},
}


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_pickle_that_is_more_than_data_is_refused_before_anything_runs(trap, protocol, tmp_path) -> None:
    ran.clear()
    (tmp_path / "trap.pkl").write_bytes(pickle.dumps(TRAPS[trap], protocol=protocol))
    for read in (read_pickle, lambda place: list(read_pickled_scores(place))):
        with pytest.raises(UserError, match=r"trap\.pkl: not a pickle of plain numbers and texts") as error:
            read(Place(str(tmp_path / "trap.pkl")))
        assert ran == [] and "\n" not in str(error.value)
    if "scores" in trap:
        pickle.loads((tmp_path / "trap.pkl").read_bytes())
        assert ran, "the pickle would have done it"
