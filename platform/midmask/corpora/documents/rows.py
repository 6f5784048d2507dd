"""Tables (.csv, .tsv, .jsonl, .parquet): one document a row, from a column of texts and, if there is one, of titles.

The columns are those that the user names; else `text` and `title`, whatever their case; else the texts are in the
column whose first 200 values are longest, and there are no titles.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from midmask.corpora.documents.blocks import (
    DAMAGED,
    EMPTY_FILE,
    EMPTY_ROW,
    NO_COLUMN,
    BadRow,
    DocumentFile,
    ParsedDocument,
    Unreadable,
    guess_encoding,
    text_blocks,
)
from midmask.errors import quoted, reason, unknown

LOOKED_AT = 200
LONGEST_CELL = 64 << 20
"""Characters of a cell or line; more is a quotation mark that is never closed, or no table."""

LONGEST_TITLE = 200
MALFORMED_ROW = "malformed line"
DELIMITERS = ",;\t|"

TableRow = Mapping[str, Any]


def read_separated(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """The rows of a table whose first line has the columns' names; .tsv: divided by tabs, else by the sign that this
    line has most of.
    """
    delimiters = "\t" if source.name.lower().endswith(".tsv") else DELIMITERS
    with source.reading() as stream:
        text = io.TextIOWrapper(stream, guess_encoding(stream), errors="replace", newline="")
        first = text.readline(LONGEST_CELL)
        text.seek(0)
        csv.field_size_limit(LONGEST_CELL)
        divided = csv.reader((line.replace("\0", "") for line in text), delimiter=max(delimiters, key=first.count))
        header = [name.strip() for name in next(divided, [])]
        if not any(header):
            raise Unreadable(EMPTY_FILE, "no line with the names of the columns")
        rows = (dict(zip(header, row, strict=False)) if row else {} for row in divided)
        try:
            yield from _row_documents(source, header, rows)
        except csv.Error as error:
            raise Unreadable(DAMAGED, f"{reason(error)}; is a quotation mark not closed?") from None


def read_jsonl(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One JSON object a line; blank lines count as rows without text only if something follows on them."""
    with source.reading() as stream:
        text = io.TextIOWrapper(stream, guess_encoding(stream), errors="replace")
        rows = (_parse_line(line) for line in iter(lambda: text.readline(LONGEST_CELL), ""))
        first = list(islice(rows, LOOKED_AT))
        names = list(dict.fromkeys(name for row in first if row for name in row))
        if not names:
            raise Unreadable(DAMAGED, "its first lines are no JSON objects, one a line")
        yield from _row_documents(source, names, chain(first, rows))


def _parse_line(line: str) -> TableRow | None:
    """The line's object; {} for a blank line, None for anything else."""
    if not line.strip():
        return {}
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def read_parquet(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """The rows of a Parquet file; columns other than those of texts are not read beyond its first rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with source.reading() as stream:
        if not stream.read(1):
            raise Unreadable(EMPTY_FILE)
        stream.seek(0)
        try:
            file = pq.ParquetFile(stream)
            names = list(file.schema_arrow.names)
            head = next(file.iter_batches(batch_size=LOOKED_AT), None)
            text, title = choose_columns(source, names, head.to_pylist() if head is not None else [])
            wanted = [name for name in (text, title) if name]
            batches = file.iter_batches(batch_size=LOOKED_AT, columns=wanted)
            rows = chain.from_iterable(batch.to_pylist() for batch in batches)
            yield from _documents(rows, text, title)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Unreadable(DAMAGED, reason(error)) from None


def _row_documents(
    source: DocumentFile, names: Sequence[str], rows: Iterable[TableRow | None]
) -> Iterator[ParsedDocument | BadRow]:
    rows = iter(rows)
    first = list(islice(rows, LOOKED_AT))
    text, title = choose_columns(source, names, [row for row in first if row])
    yield from _documents(chain(first, rows), text, title)


def _documents(rows: Iterable[TableRow | None], text: str, title: str | None) -> Iterator[ParsedDocument | BadRow]:
    for number, row in enumerate(rows, start=1):
        if row is None:
            yield BadRow(MALFORMED_ROW, number, "no JSON object")
        elif row:
            body = row.get(text)
            name = row.get(title) if title else ""
            if not isinstance(body, str) or not body.strip():
                yield BadRow(EMPTY_ROW, number, f"{text}: {quoted(body)}")
                continue
            named = " ".join(name.split())[:LONGEST_TITLE] if isinstance(name, str) else ""
            blocks = text_blocks(body.replace("\r\n", "\n").replace("\r", "\n"))
            yield ParsedDocument(named, blocks, number)


def choose_columns(source: DocumentFile, names: Sequence[str], rows: Sequence[TableRow]) -> tuple[str, str | None]:
    """(column of texts, column of titles or None) of a table, from its columns' names and first rows.

    Raises:
        UserError: if a column that the user names is not there.
        Unreadable: if no column holds texts.
    """
    for field in ("text_column", "title_column"):
        name = getattr(source, field)
        if name is not None and name not in names:
            raise unknown(f"corpus.{field} of {source.place}", name, names, hint="Name one of the table's columns.")
    usual = {name.lower(): name for name in reversed(names)}
    text = source.text_column or usual.get("text")
    if text is None:
        lengths = {name: _length(row.get(name) for row in rows) for name in names}
        text = max(names, key=lambda name: lengths[name])
        if not lengths[text]:
            raise Unreadable(NO_COLUMN, f"its columns are {', '.join(map(str, names))}")
    title = source.title_column or usual.get("title")
    return text, title if title != text else None


def _length(values: Iterable[Any]) -> int:
    return sum(len(value) for value in values if isinstance(value, str) and not _is_number(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
