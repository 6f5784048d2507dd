"""Files cut into pieces that are read apart from each other, in this process or in workers, into checked rows.

A piece is a whole file or a byte range of one. Reading it gives tables ("blocks") of at most 2,048 rows in the order of
the source: the row's own columns, and beside them where it came from (`piece`, `line` within the piece) and what is
wrong with it (`fault`, with the text as `raw` and a `reason`; null for a good row). Its last row is a marker, fault
END, whose `line` is the number of lines in the piece: whoever puts the pieces together adds these up and knows each
row's line in its file, although no reader of a byte range can.

Ids, texts and grades in a row's fields are taken or refused alike in all formats (`read_id`, `read_text`, …).
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from midmask.corpora.opening import measure_file, open_text
from midmask.errors import quoted
from midmask.store.place import Place

END = "end of piece"
MALFORMED, NOT_UTF8, OVERSIZED = "malformed line", "invalid UTF-8", "oversized passage"
NO_GRADE = "grade that is no whole number"
EMPTY_PASSAGE, EMPTY_QUERY = "empty passage", "empty query"
SPACED_ID = "white space in an id"

BLOCK_ROWS = 2_048
BLOCK_BYTES = 4 << 20
PIECE_BYTES = 2 << 20
RAW_CHARACTERS, REASON_CHARACTERS = 1_000, 200

ORIGIN = [("piece", pa.int32()), ("line", pa.int64()), *((name, pa.string()) for name in ("fault", "raw", "reason"))]
BLOCKS = {
    "docs": pa.schema([*ORIGIN, *((name, pa.string()) for name in ("doc_id", "title", "text"))]),
    "queries": pa.schema(
        [*ORIGIN, ("query_id", pa.string()), ("text", pa.string()), ("answers", pa.list_(pa.string()))]
    ),
    "qrels": pa.schema([*ORIGIN, ("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())]),
}


class Piece(Protocol):
    """A part of a collection that is read on its own; picklable. `number`: its position among the pieces."""

    @property
    def number(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self) -> Iterator[pa.Table]: ...


class Fault(ValueError):
    """Raised for a malformed row. kind: category in the counts; reason: a message that names field and value."""

    def __init__(self, kind: str, reason: str = "") -> None:
        super().__init__(kind)
        self.kind, self.reason = kind, reason


def kind_and_reason(error: Exception) -> tuple[str, str]:
    """Values of the columns `fault` and `reason` for an exception from a row's parser."""
    if isinstance(error, Fault):
        return error.kind, error.reason
    if isinstance(error, json.JSONDecodeError):
        return MALFORMED, f"no JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return MALFORMED, "JSON that is nested too deeply"
    return MALFORMED, " ".join(str(error).split())[:REASON_CHARACTERS]


class Record(NamedTuple):
    """A line, or an element that spans lines. `line` counts from 1 in the piece; `data` is None if it was too long."""

    line: int
    data: bytes | None


def lines(stream: BinaryIO, end: int | None, limit: int) -> Iterator[Record]:
    """The lines that begin before byte `end` and are not blank; and one last, empty record, whose line is the number of
    all lines.
    """
    count = 0
    while (end is None or stream.tell() < end) and (data := stream.readline(limit)):
        count += 1
        if whole := data.endswith(b"\n") or len(data) < limit:
            data = data.rstrip(b"\r\n")
        else:
            _skip_line(stream, limit)
        if data.strip():
            yield Record(count, data if whole else None)
    yield Record(count, b"")


def _skip_line(stream: BinaryIO, limit: int) -> None:
    while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
        pass


@dataclass(frozen=True, kw_only=True)
class RecordPiece:
    """A piece whose records are rows of one kind ("docs", "queries", "qrels").

    parse: a record -> the row's own values (`BLOCKS`). Raises Fault, or ValueError for a malformed record. split: of
    queries or judgements, "" if the file does not name one. number, max_characters: set by `numbered`.
    """

    rows: str
    file: str
    size: int
    parse: Callable[[Any], tuple[Any, ...]]
    split: str = ""
    max_characters: int = 0
    number: int = 0

    def records(self) -> Iterator[tuple[int, Any]]:
        """(line, record) in order; an empty record states the number of lines alone."""
        raise NotImplementedError

    def values(self, record: Any) -> tuple[Any, ...]:
        """The row's own values; raises as `parse`."""
        return self.parse(record)

    def quote(self, record: Any) -> str:
        """A record as text, for the quarantine."""
        raise NotImplementedError

    def read(self) -> Iterator[pa.Table]:
        """Blocks in source order, the last one ending in the marker row.

        Raises:
            UserError: if the file cannot be read here.
        """
        block, line = ParsedBlock(BLOCKS[self.rows], self.number), 0
        for line, record in self.records():
            if record == b"":
                continue
            try:
                block.add(line, check_values(self.rows, self.values(record), self.max_characters))
            except (ValueError, RecursionError) as error:
                block.add(line, None, *kind_and_reason(error), self.quote(record)[:RAW_CHARACTERS])
            if block.full:
                yield block.take()
        block.add(line, None, END)
        yield block.take()


P = TypeVar("P", bound=RecordPiece)


def numbered(pieces: Iterable[P], max_characters: int) -> tuple[P, ...]:
    """The pieces of one kind of rows with their positions, and the length of the longest passage."""
    return tuple(replace(piece, number=number, max_characters=max_characters) for number, piece in enumerate(pieces))


@dataclass(frozen=True, kw_only=True)
class TextPiece(RecordPiece):
    """The records that begin at bytes [start, end) of a file.

    cut: stream, end, longest record in bytes -> its records, as `lines`. skip: header lines at the file's start.
    of_objects: whether records are JSON objects, which `parse` gets in place of the text.
    """

    folder: Place
    start: int
    end: int | None
    skip: int = 0
    cut: Callable[[BinaryIO, int | None, int], Iterator[Record]] = lines
    of_objects: bool = False

    def records(self) -> Iterator[Record]:
        # Room for a passage whose characters are all escaped, beside its other fields.
        limit = 8 * self.max_characters + (64 << 10)
        skip = 0 if self.start else self.skip
        with open_text(self.folder / self.file, only_text=not self.start) as stream:
            if self.start:
                stream.seek(self.start - 1)
                _skip_line(stream, limit)
            for line, data in self.cut(stream, self.end, limit):
                if line > skip:
                    yield Record(line, data)

    def values(self, record: bytes | None) -> tuple[Any, ...]:
        if record is None:
            raise Fault(OVERSIZED)
        try:
            text = record.decode().removeprefix("\ufeff")
            return self.parse(_json_object(text) if self.of_objects else text)
        except UnicodeError as error:
            raise Fault(NOT_UTF8, str(error)) from None

    def quote(self, record: bytes | None) -> str:
        return f"(over {8 * self.max_characters} bytes)" if record is None else record.decode(errors="replace")


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
    _check_ids(values[: 2 if rows == "qrels" else 1])
    if rows == "docs":
        return _check_passage(values, max_characters)
    if rows == "queries":
        if not values[1].strip():
            raise Fault(EMPTY_QUERY, f"text is {quoted(values[1])}")
        return values if len(values) == 3 else (*values, None)  # of a format without answer strings
    return values


def _check_ids(ids: tuple[str, ...]) -> None:
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


class ParsedBlock:
    """Rows under way to a table of at most `most` rows and some 4 MB."""

    def __init__(self, schema: pa.Schema, piece: int, most: int = BLOCK_ROWS) -> None:
        self._schema, self._piece, self._most = schema, piece, most
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def add(
        self,
        line: int,
        values: tuple[Any, ...] | None,
        fault: str | None = None,
        reason: str = "",
        raw: str | None = None,
        *after: Any,
    ) -> None:
        """A good row's values, or None and what is wrong with it; and the values of the last columns."""
        if values is None:
            values = (None,) * (len(self._schema) - len(ORIGIN) - len(after))
        self._bytes += sum(len(value) for value in values if isinstance(value, str))
        self._rows.append((self._piece, line, fault, raw, reason or None, *values, *after))

    @property
    def full(self) -> bool:
        return len(self._rows) >= self._most or self._bytes >= BLOCK_BYTES

    def take(self) -> pa.Table:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self._schema, strict=True)]
        self._rows, self._bytes = [], 0
        return pa.Table.from_arrays(arrays, schema=self._schema)


def batch_files(files: Iterable[tuple[str, int]], most_bytes: int, most_files: int) -> Iterator[tuple[str, ...]]:
    """Groups of consecutive files (name, bytes), so many bytes and files together at most; a larger file is alone."""
    batch: list[str] = []
    total = 0
    for file, size in files:
        if batch and (total + size > most_bytes or len(batch) >= most_files):
            yield tuple(batch)
            batch, total = [], 0
        batch.append(file)
        total += size
    if batch:
        yield tuple(batch)


def byte_ranges(folder: Place, file: str, *, whole: bool) -> list[tuple[int, int | None, int]]:
    """(start, end, size) of the pieces of a file: one if it is to stay whole, or is a gzip stream."""
    size, packed = measure_file(folder / file)
    if whole or packed or size <= PIECE_BYTES:
        return [(0, None, size)]
    starts = list(range(0, size, PIECE_BYTES))
    return [(start, min(start + PIECE_BYTES, size), min(PIECE_BYTES, size - start)) for start in starts]


def is_nothing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, or pandas' NaT and NA. An infinite number and "" do not."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return True
    except ValueError:  # a comparison that gives an array
        return False


def read_id(row: Mapping[str, Any], *names: str) -> str:
    """The id in the first of these fields that has one.

    Raises:
        Fault: if there is none, or it is neither a text nor a whole number.
    """
    value = _first_value(row, names)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _refusal(row, names, value, "which is neither a text nor a whole number")
    return str(value)


def read_text(row: Mapping[str, Any], *names: str) -> str:
    """The text in the first of these fields that has one; "" where it is there and holds nothing.

    Raises:
        Fault: if the row has none of the fields, or the value is no text.
    """
    value = _first_value(row, names)
    if is_nothing(value) and any(name in row for name in names):
        return ""
    if not isinstance(value, str):
        raise _refusal(row, names, value, "which is no text")
    return value


def read_title(row: Mapping[str, Any]) -> str:
    """The title of a row; "" where there is none, or nothing in the field.

    Raises:
        Fault: for a value that is no text.
    """
    return read_text({"title": row.get("title")}, "title")


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


def split_columns(text: str, *names: str) -> list[str]:
    """The columns of a line divided by tabs; ValueError if it has another number of them."""
    return check_columns(text.split("\t"), *names)


def check_columns(cells: list[str], *names: str) -> list[str]:
    """The cells; ValueError if there are not as many as names."""
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} columns instead of {len(names)} ({', '.join(names)})")
    return cells


def _first_value(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first of the fields that holds something; else the first that is there; else None."""
    present = [row[name] for name in names if name in row]
    return next((value for value in present if not is_nothing(value)), present[0] if present else None)


def _refusal(row: Mapping[str, Any], names: tuple[str, ...], value: Any, fault: str) -> Fault:
    present = [name for name in names if name in row]
    if not present:
        fields = quoted(list(row)) if row else "none"
        return Fault(MALFORMED, f"no field {names[0]}; its fields are {fields}")
    return Fault(MALFORMED, f"{present[0]} is {quoted(value)}, {fault}")
