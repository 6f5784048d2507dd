"""A teacher's scores as others store them; pickles among them are read without running anything in them.

    list layout   Parquet, a row a query: query_id, corpus_id: [ids], score: [numbers] (Hugging Face)
    pickle        scores[query][passage] (cross-encoder-ms-marco-MiniLM-L-6-v2-scores.pkl.gz)
    lines         JSON, a query a line: the list layout; or {"query_id", "positives": {"doc_id": [ids], "score":
                  [numbers]}, "negatives": the same} (SimLM)
    columns       query, passage, score, divided by white space, the score perhaps in brackets (RetroMAE)

A pickle names functions and calls them; here every name is looked up in a table of four stand-ins that only rearrange
bytes, and any other name ends the reading. Not even numpy's own functions for pickles are called. What comes out is
made of numbers, texts, lists, tuples, dictionaries and arrays of numbers or texts, in memory that grows with the file.
The reader is Python's own one in Python: that in C makes a table as long as the largest number of a memo that a file
states (4 GB for a file of 7 bytes). It takes some 0.7 µs for each pair of a published file.
"""

import io
import pickle
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.corpora.tables import columns_told, is_id, is_list_of_ids, is_list_of_numbers, readable
from midmask.corpora.text_files import parse_lines, text_lines, unpack
from midmask.errors import UserError, quoted
from midmask.exchange.negatives_files import id_in
from midmask.store.place import Place

EXPANSION = 1_032
"""Bytes that a byte of a gzip stream can become at most."""

_TYPES = re.compile(r"[fiu][1248]|U\d{1,4}")


def read_pickle(place: Place) -> Any:
    """The contents of a pickle, gzip'd or not; an array is a `PickledArray`.

    Raises:
        UserError: if it holds anything but plain data, or is none.
    """
    if not place.exists():
        raise UserError(f"{place}: there is no such file")
    if place.is_folder():
        raise UserError(f"{place}: a folder; name a file in it")
    with place.reading() as stream:
        try:
            return _Reader(_Bounded(unpack(stream), EXPANSION * place.size())).load()
        except Exception as error:  # a broken pickle can raise anything at all, and runs nothing of ours or others'
            raise UserError(
                f"{place}: not a pickle of plain numbers and texts ({type(error).__name__}: "
                f"{str(error).partition(chr(10))[0][:120]}). Save its arrays with numpy.save, its ids one a line."
            ) from None


class PickledArray:
    """An array as it comes out of a pickle: made empty, filled once."""

    def __init__(self, values: NDArray[Any] | None) -> None:
        self._values = values

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_Type", bool, bytes]) -> None:
        _, shape, kind, by_columns, data = state
        self._values = _array(data, kind, shape, "F" if by_columns else "C")

    @property
    def values(self) -> NDArray[Any]:
        if self._values is None:
            raise ValueError("an array without contents")
        return self._values


class _Type:
    """An element type as numpy writes it: a letter and bytes, and in its state the order of bytes."""

    def __init__(self, code: str, *_: object) -> None:
        if not _TYPES.fullmatch(code):
            _refuse(f"elements of type {code!r}")
        self.code, self.order = code, "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            _refuse(f"a byte order {state[1]!r}")
        self.order = state[1]


@dataclass(frozen=True, slots=True)
class _Call:
    """A function that a pickle may call, and nothing else may be done to."""

    function: Callable[..., object]

    def __call__(self, *inputs: object) -> object:
        return self.function(*inputs)

    def __setstate__(self, state: object) -> None:
        _refuse("a state for a function")


def _array(data: object, kind: _Type, shape: tuple[int, ...], layout: str) -> NDArray[Any]:
    if not isinstance(data, bytes | bytearray) or not isinstance(kind, _Type) or layout not in ("C", "F"):
        _refuse("an array that is not made of bytes")
    flat = np.frombuffer(bytes(data), dtype=np.dtype(kind.order + kind.code))
    return flat.reshape(tuple(shape), order="F" if layout == "F" else "C")


def _from_buffer(data: object, kind: _Type, shape: tuple[int, ...], layout: str, *_: object) -> PickledArray:
    return PickledArray(_array(data, kind, shape, layout))


def _scalar(kind: _Type, data: object) -> object:
    return _array(data, kind, (1,), "C").item()


def _encode(text: str, encoding: str) -> bytes:
    """Protocols before 3 have no bytes, and write them as a text to be encoded."""
    if not isinstance(text, str) or encoding != "latin1":
        _refuse(f"a text in {encoding!r}")
    return text.encode("latin1")


def _refuse(what: str) -> NoReturn:
    raise pickle.UnpicklingError(what)


_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): lambda *_: _refuse("an array made by itself"),  # only ever an argument
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}
for _package in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _KNOWN[f"{_package}.multiarray", "_reconstruct"] = lambda *_: PickledArray(None)
    _KNOWN[f"{_package}.multiarray", "scalar"] = _scalar
    _KNOWN[f"{_package}.numeric", "_frombuffer"] = _from_buffer


class _Bounded:
    """A stream that does not even try to read more bytes at once than the file can hold."""

    def __init__(self, stream: io.BufferedReader, most: int) -> None:
        self._stream, self._most = stream, most
        self.readline = stream.readline

    def read(self, size: int) -> bytes:
        if size > self._most:
            raise EOFError(f"{size} bytes are announced, and the file has at most {self._most}")
        return self._stream.read(size)

    def readinto(self, buffer: memoryview) -> int:
        return self._stream.readinto(buffer)


class _Reader(pickle._Unpickler):
    """Names are looked up in `_KNOWN`."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _KNOWN:
            _refuse(f"it asks for {module}.{name}")
        return _Call(_KNOWN[module, name])


def _read_bytearray(reader: Any) -> None:
    """Reads a bytearray; unlike the standard library, allocates no memory before the bytes are read."""
    (size,) = struct.unpack("<Q", reader.read(8))
    reader.append(bytearray(reader.read(size)))


def _with_plain_keys(read: Callable[[Any], None], keys: Callable[[list[Any]], list[Any]]) -> Callable[[Any], None]:
    """An instruction that fills a dictionary, for keys that are no collections: to hash tuples inside of tuples deep
    enough would end the process.

    Args:
        keys: of the reader's stack.
    """

    def check_keys_and_read(reader: Any) -> None:
        for key in keys(reader.stack):
            if not isinstance(key, str | int | float | bytes):
                _refuse(f"a {type(key).__name__} as a key")
        read(reader)

    return check_keys_and_read


_Reader.dispatch = {
    **pickle._Unpickler.dispatch,
    pickle.BYTEARRAY8[0]: _read_bytearray,
    pickle.SETITEM[0]: _with_plain_keys(pickle._Unpickler.dispatch[pickle.SETITEM[0]], lambda stack: stack[-2:-1]),
    pickle.SETITEMS[0]: _with_plain_keys(pickle._Unpickler.dispatch[pickle.SETITEMS[0]], lambda stack: stack[::2]),
    pickle.DICT[0]: _with_plain_keys(pickle._Unpickler.dispatch[pickle.DICT[0]], lambda stack: stack[::2]),
}
for _opcode in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET):
    del _Reader.dispatch[_opcode[0]]


LIST = pa.schema([("query_id", pa.string()), ("corpus_id", pa.list_(pa.string())), ("score", pa.list_(pa.float32()))])

LINES = '{"query_id", "corpus_id": [ids], "score": [numbers]}, or SimLM\'s {"query_id", "positives", "negatives"}'

LAYOUT = "wanted is Parquet with the columns query_id, corpus_id (a list of ids) and score (a list of numbers)"

HIGHEST = 3.4028234e38
"""The largest number in single precision, in which scores are stored."""

ROWS = 1_024
"""Number of queries in memory at a time."""

Scored = tuple[str, str, float]
"""A query, a passage, a score."""


def read_score_lists(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: for a damaged file, other columns, and rows whose lists differ in length.
    """
    with readable(place, LAYOUT), place.reading() as stream:
        file = pq.ParquetFile(stream)
        _check_columns(place, file.schema_arrow)
        number = 0
        for batch in file.iter_batches(batch_size=ROWS, columns=LIST.names):
            for row in batch.to_pylist():
                yield from _read_row(place, number, row["query_id"], row["corpus_id"], row["score"], "row (from 0)")
                number += 1


def _check_columns(place: Place, schema: pa.Schema) -> None:
    columns = zip(LIST.names, (is_id, is_list_of_ids, is_list_of_numbers), strict=True)
    if not all(schema.names.count(name) == 1 and fits(schema.field(name).type) for name, fits in columns):
        raise UserError(f"{place}: its columns are {columns_told(schema)}; {LAYOUT}")


def _read_row(
    place: Place,
    number: int,
    query: Any,
    ids: list[Any] | None,
    scores: list[Any] | None,
    kind: str = "line",
) -> Iterator[Scored]:
    """The pairs of a row or line of the list layout; number and kind, for messages."""
    if query is None or ids is None or scores is None or len(ids) != len(scores):
        raise UserError(f"{place}, {kind} {number}: query {query!r} has not one score for each of its passages")
    for doc_id, score in zip(ids, scores, strict=True):
        yield _pair(place, query, doc_id, score)


def read_pickled_scores(place: Place) -> Iterator[Scored]:
    """Nothing in the file is executed (`read_pickle`); it may be gzip'd.

    Raises:
        UserError: if it is no pickle of scores[query][passage] made of plain dictionaries and numbers.
    """
    scores = read_pickle(place)
    if not isinstance(scores, dict):
        raise UserError(f"{place}: a pickled {type(scores).__name__}; wanted is scores[query][passage]")
    for query_id, by_passage in scores.items():
        if not isinstance(by_passage, dict):
            raise UserError(
                f"{place}: query {quoted(query_id)} has a {type(by_passage).__name__}; wanted is scores[query][passage]"
            )
        for doc_id, score in by_passage.items():
            yield _pair(place, query_id, doc_id, score)


def read_score_lines(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: naming file and line, for a line of another layout, and lists that differ in length.
    """
    for number, (query, lists) in parse_lines(place, _score_lists, LINES):
        for ids, scores in lists:
            yield from _read_row(place, number, query, ids, scores)


def _score_lists(row: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """A line's query, and its passages with their scores."""
    parts = [row["positives"], row["negatives"]] if "positives" in row else [{**row, "doc_id": row["corpus_id"]}]
    lists = [(part["doc_id"], part["score"]) for part in parts]
    if not all(isinstance(column, list) for pair in lists for column in pair):
        raise ValueError("its ids or scores are no list")
    return row["query_id"], lists


def read_score_columns(place: Place) -> Iterator[Scored]:
    """
    Raises:
        UserError: naming file and line, for a line that is not an id, an id and a number.
    """
    for number, line in text_lines(place):
        try:
            query, passage, score = line.split()
            yield _pair(place, query, passage, float(score.strip("[]")))
        except ValueError:
            raise UserError(
                f"{place}, line {number}: wanted is a query, a passage and a score, found {line[:80]!r}"
            ) from None


READERS = {
    ".parquet": read_score_lists,
    ".jsonl": read_score_lines,
    ".tsv": read_score_columns,
    ".txt": read_score_columns,
    ".pkl": read_pickled_scores,
}
"""The end of a file's name, .gz apart -> its reader."""


def read_scores_file(place: Place) -> Iterator[Scored]:
    """The scores of a file, by the end of its name; a pickle's, if that is none of `READERS`.

    Raises:
        UserError: for a damaged file, or one of another layout.
    """
    name = place.uri.removesuffix(".gz")
    return next((read for end, read in READERS.items() if name.endswith(end)), read_pickled_scores)(place)


def _pair(place: Place, query_id: object, doc_id: object, score: object) -> Scored:
    """
    Raises:
        UserError: for ids that are no texts or whole numbers, and a score that single precision cannot hold.
    """
    where = f"{place}: query {quoted(query_id)}, passage {quoted(doc_id)}"
    try:
        names = id_in(query_id), id_in(doc_id)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= HIGHEST:
        raise UserError(f"{where}: {quoted(score)} is not a finite score")
    return *names, float(score)
