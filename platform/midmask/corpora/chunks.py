"""Files read apart from each other, in this process or in workers, into checked rows.

Reading a piece (a file) gives tables ("blocks") of at most 2,048 rows in the order of the source: the row's own
columns, and beside them where it came from (`file`, `line`) and what is wrong with it (`fault`, with the text as `raw`
and a `reason`; null for a good row).

Ids, texts and grades in a row's fields are taken or refused alike in all formats (`read_id`, `read_text`, …).
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from midmask.corpora.opening import open_text
from midmask.errors import quoted
from midmask.store.place import Place

MALFORMED, NOT_UTF8, OVERSIZED = "malformed line", "invalid UTF-8", "oversized passage"
NO_GRADE = "grade that is no whole number"
EMPTY_PASSAGE, EMPTY_QUERY = "empty passage", "empty query"
SPACED_ID = "white space in an id"

BLOCK_ROWS = 2_048
BLOCK_BYTES = 4 << 20
RAW_CHARACTERS, REASON_CHARACTERS = 1_000, 200

ORIGIN = [("file", pa.string()), ("line", pa.int64()), *((name, pa.string()) for name in ("fault", "raw", "reason"))]
VALUES = {
    "docs": ("doc_id", "title", "text"),
    "queries": ("query_id", "text", "answers"),
    "qrels": ("query_id", "doc_id", "grade"),
    "docstrings": ("rule", "name", "module", "summary", "text"),
}
"""Kind of rows -> names of a row's own values. Formats without answer strings have no `answers`; docstrings are rows of
`pydocs`, and of one that is left out there is the rule alone.
"""

_TYPES = {"answers": pa.list_(pa.string()), "grade": pa.int32()}
BLOCKS = {
    rows: pa.schema([*ORIGIN, ("split", pa.string()), *((name, _TYPES.get(name, pa.string())) for name in names)])
    for rows, names in VALUES.items()
}
"""Kind of rows -> the columns of its blocks. `split`: of the file, "" if it does not name one."""


class Fault(ValueError):
    """Raised for a malformed row, or given in place of a record that cannot be read.

    kind: category in the counts. reason: a message that names field and value. raw: the record as text, if the piece
    cannot quote it.
    """

    def __init__(self, kind: str, reason: str = "", raw: str | None = None) -> None:
        super().__init__(kind)
        self.kind, self.reason, self.raw = kind, reason, raw


class Record(NamedTuple):
    """A line, or an element that spans lines. `line` counts from 1; `data` is None if it was too long."""

    line: int
    data: bytes | None


def lines(stream: BinaryIO, limit: int) -> Iterator[Record]:
    """The lines that are not blank."""
    for count, data in enumerate(iter(lambda: stream.readline(limit), b""), start=1):
        whole = data.endswith(b"\n") or len(data) < limit
        if not whole:
            while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
                pass
        if data.strip():
            yield Record(count, data.rstrip(b"\r\n") if whole else None)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a collection that is read on its own: records, which are rows of one kind (`VALUES`); picklable.

    size: bytes of text, estimated. parse: a record -> the row's own values, which it may be already; raises Fault, or
    ValueError for a malformed record. max_characters: of the longest passage, set by the reader.
    """

    rows: str
    file: str
    size: int
    parse: Callable[[Any], tuple[Any, ...]] = tuple
    split: str = ""
    max_characters: int = 0

    def records(self) -> Iterator[tuple[int, Any]]:
        """(line, record or its fault) in order."""
        raise NotImplementedError

    def values(self, record: Any) -> tuple[Any, ...]:
        """The row's own values; raises as `parse`."""
        return self.parse(record)

    def quote(self, record: Any) -> str:
        """A record as text, for the quarantine."""
        return str(record)

    def read(self) -> Iterator[pa.Table]:
        """Blocks in source order, at least one.

        Raises:
            UserError: if the file cannot be read here.
        """
        schema = BLOCKS[self.rows]
        block: list[dict[str, Any]] = []
        size = 0
        for line, record in self.records():
            row: dict[str, Any] = {"file": self.file, "line": line}
            try:
                if isinstance(record, Fault):
                    raise record
                values = check_values(self.rows, self.values(record), self.max_characters)
                row |= {"split": self.split, **dict(zip(VALUES[self.rows], values, strict=False))}
                size += sum(len(value) for value in values if isinstance(value, str))
            except (ValueError, RecursionError) as error:
                fault = error if isinstance(error, Fault) else Fault(MALFORMED, " ".join(str(error).split()))
                raw = self.quote(record) if fault.raw is None else fault.raw
                raw = raw.encode("utf-8", "backslashreplace").decode()[:RAW_CHARACTERS]
                row |= {"fault": fault.kind, "raw": raw, "reason": fault.reason[:REASON_CHARACTERS] or None}
            block.append(row)
            if len(block) >= BLOCK_ROWS or size >= BLOCK_BYTES:
                yield pa.Table.from_pylist(block, schema)
                block, size = [], 0
        yield pa.Table.from_pylist(block, schema)


@dataclass(frozen=True, kw_only=True)
class TextPiece(Piece):
    """The records of a file of text.

    cut: stream, longest record in bytes -> its records, as `lines`. skip: header lines at the file's start.
    of_objects: whether records are JSON objects, which `parse` gets in place of the text.
    """

    folder: Place
    skip: int = 0
    cut: Callable[[BinaryIO, int], Iterator[Record]] = lines
    of_objects: bool = False

    def records(self) -> Iterator[Record]:
        # Room for a passage whose characters are all escaped, beside its other fields.
        limit = 8 * self.max_characters + (64 << 10)
        with open_text(self.folder / self.file) as stream:
            yield from (record for record in self.cut(stream, limit) if record.line > self.skip)

    def values(self, record: bytes | None) -> tuple[Any, ...]:
        if record is None:
            raise Fault(OVERSIZED, raw=f"(over {8 * self.max_characters} bytes)")
        try:
            text = record.decode().removeprefix("\ufeff")
            return self.parse(_json_object(text) if self.of_objects else text)
        except UnicodeError as error:
            raise Fault(NOT_UTF8, str(error)) from None

    def quote(self, record: bytes) -> str:
        return record.decode(errors="replace")


def _json_object(text: str) -> dict[str, Any]:
    row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError(f"not a JSON object but {quoted(row)}")
    return row


def check_values(rows: str, values: tuple[Any, ...], max_characters: int) -> tuple[Any, ...]:
    """A row's own values as the block has them.

    Raises:
        Fault: by kind.
    """
    try:
        for value in values:
            if isinstance(value, str):
                value.encode()  # a lone surrogate, written as an escape in JSON, is no text either
    except UnicodeError:
        raise Fault(NOT_UTF8) from None
    _check_ids([value for name, value in zip(VALUES[rows], values, strict=False) if name.endswith("_id")])
    if rows == "docs":
        return _check_passage(values, max_characters)
    if rows == "queries" and not values[1].strip():
        raise Fault(EMPTY_QUERY, f"text is {quoted(values[1])}")
    return values


def _check_ids(ids: list[str]) -> None:
    """TREC's run files are divided by white space, so an id that has some could be ranked but never written."""
    for name in ids:
        if not name.strip():
            raise Fault(MALFORMED, f"the id {quoted(name)} is empty")
        if len(name.split()) != 1:
            raise Fault(SPACED_ID, f"the id {quoted(name)}")


def _check_passage(values: tuple[Any, ...], max_characters: int) -> tuple[Any, ...]:
    """A passage that has a title but no text keeps its title as its text."""
    doc_id, title, text = values
    if not text.strip():
        title, text = "", title
    if not text.strip():
        raise Fault(EMPTY_PASSAGE, "neither a text nor a title")
    if len(text) > max_characters:
        raise Fault(OVERSIZED, f"{len(text):,} characters, corpus.max_characters = {max_characters:,}")
    return doc_id, title, text


def read_here(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    """The blocks of the pieces, one piece after the other."""
    for piece in pieces:
        yield from piece.read()


def batches(pieces: Iterable[Piece], most_bytes: int, most_pieces: int) -> Iterator[list[Piece]]:
    """Consecutive pieces of so many bytes together at most; a larger one is alone."""
    batch: list[Piece] = []
    total = 0
    for piece in pieces:
        if batch and (total + piece.size > most_bytes or len(batch) >= most_pieces):
            yield batch
            batch, total = [], 0
        batch.append(piece)
        total += piece.size
    if batch:
        yield batch


def is_nothing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, or pandas' NaT and NA. An infinite number and "" do not."""
    import pandas as pd  # here: a dry run does without it

    return not isinstance(value, str) and bool(pd.api.types.is_scalar(value) and pd.isna(value))


def read_id(row: Mapping[str, Any], *names: str) -> str:
    """The id in the first of these fields that has one.

    Raises:
        Fault: if there is none, or it is neither a text nor a whole number.
    """
    name, value = _first_value(row, names)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Fault(MALFORMED, f"{name} is {quoted(value)}, which is neither a text nor a whole number")
    return str(value)


def read_text(row: Mapping[str, Any], *names: str) -> str:
    """The text in the first of these fields that has one; "" where it is there and holds nothing.

    Raises:
        Fault: if the row has none of the fields, or the value is no text.
    """
    name, value = _first_value(row, names)
    if is_nothing(value):
        return ""
    if not isinstance(value, str):
        raise Fault(MALFORMED, f"{name} is {quoted(value)}, which is no text")
    return value


def read_title(row: Mapping[str, Any]) -> str:
    """The title of a row; "" where there is none, or nothing in the field.

    Raises:
        Fault: for a value that is no text.
    """
    return read_text({"title": row.get("title")}, "title")


def _first_value(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    """The first of the fields that holds something; else the first that is there, and its value."""
    present = [(name, row[name]) for name in names if name in row]
    if not present:
        raise Fault(MALFORMED, f"no field {names[0]}; its fields are {quoted(list(row)) if row else 'none'}")
    return next(((name, value) for name, value in present if not is_nothing(value)), present[0])


def whole_grade(value: Any, field: str = "score") -> int:
    """A grade of 32 bits, from a number or its digits.

    Raises:
        Fault: for any other number, or none.
    """
    try:
        number = float(value)
    except (ValueError, TypeError, OverflowError):
        number = math.nan
    if not number.is_integer() or abs(number) >= 2**31:  # infinities and NaN are no integers
        kind = NO_GRADE if math.isfinite(number) else MALFORMED
        raise Fault(kind, f"{field} is {quoted(value)}, not a whole number")
    return int(number)


def check_columns(cells: list[str], *names: str) -> list[str]:
    """The cells; ValueError if there are not as many as names."""
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} columns instead of {len(names)} ({', '.join(names)})")
    return cells
