"""Tables (.csv, .tsv, .jsonl, .parquet): one document a row, from the columns of texts and of titles that the user
names, else from `text` and, if there is one, `title`.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from midmask.corpora.documents.blocks import (
    DAMAGED,
    EMPTY_ROW,
    NO_COLUMN,
    NO_TEXT,
    DocumentFile,
    ParsedDocument,
    Unreadable,
    plain_text,
    text_blocks,
)
from midmask.errors import quoted, reason, unknown

LONGEST_CELL = 64 << 20
"""Characters of a cell or line; more is a quotation mark that is never closed, or no table."""
LONGEST_TITLE = 200
MALFORMED_ROW = "malformed line"
DELIMITERS = ",;\t|"

TableRow = Mapping[str, Any]


def read_separated(source: DocumentFile) -> Iterator[ParsedDocument | Unreadable]:
    """The rows of a table whose first line has the columns' names; .tsv: divided by tabs, else by the sign that this
    line has most of.
    """
    with source.reading_text() as text:
        first = text.readline(LONGEST_CELL)
        text.seek(0)
        delimiter = "\t" if source.name.lower().endswith(".tsv") else max(DELIMITERS, key=first.count)
        csv.field_size_limit(LONGEST_CELL)
        divided = csv.reader((line.replace("\0", "") for line in text), delimiter=delimiter)
        header = [name.strip() for name in next(divided, [])]
        rows = (dict(zip(header, row, strict=False)) if row else {} for row in divided)
        try:
            yield from _documents(source, rows)
        except csv.Error as error:
            raise Unreadable(DAMAGED, f"{reason(error)}; is a quotation mark not closed?") from None


def read_jsonl(source: DocumentFile) -> Iterator[ParsedDocument | Unreadable]:
    """One JSON object a line."""
    with source.reading_text() as text:
        yield from _documents(source, map(_parse_line, iter(lambda: text.readline(LONGEST_CELL), "")))


def _parse_line(line: str) -> TableRow | None:
    """The line's object; {} for a blank line, None for anything else."""
    if not line.strip():
        return {}
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def read_parquet(source: DocumentFile) -> Iterator[ParsedDocument | Unreadable]:
    """The rows of a Parquet file; only the columns of texts and titles are read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with source.reading() as stream:
        try:
            file = pq.ParquetFile(stream)
            columns = choose_columns(source, file.schema_arrow.names)
            present = [name for name in columns if name in file.schema_arrow.names]
            batches = file.iter_batches(batch_size=1_024, columns=present)
            yield from _documents(source, (row for batch in batches for row in batch.to_pylist()))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Unreadable(DAMAGED, reason(error)) from None


def _documents(source: DocumentFile, rows: Iterable[TableRow | None]) -> Iterator[ParsedDocument | Unreadable]:
    """A document for each row that has a text; the first good row tells the columns."""
    text = title = ""
    for number, row in enumerate(rows, start=1):
        if row is None:
            yield Unreadable(MALFORMED_ROW, "no JSON object", number)
        elif row:
            if not text:
                text, title = choose_columns(source, row)
            body, name = row.get(text), row.get(title)
            if not isinstance(body, str) or not body.strip():
                yield Unreadable(EMPTY_ROW, f"{text}: {quoted(body)}", number)
                continue
            named = " ".join(name.split())[:LONGEST_TITLE] if isinstance(name, str) else ""
            yield ParsedDocument(named, text_blocks(plain_text(body)), number)
    if not text:
        raise Unreadable(NO_TEXT, "a table without rows")


def choose_columns(source: DocumentFile, names: Iterable[str]) -> tuple[str, str]:
    """The columns of texts and of titles of a table with columns of these names; there may be none of titles.

    Raises:
        UserError: if a column that the user names is not there.
        Unreadable: if the user names none, and none is called `text`.
    """
    names = list(names)
    for field in ("text_column", "title_column"):
        if (name := getattr(source, field)) is not None and name not in names:
            raise unknown(f"corpus.{field} of {source.place}", name, names, hint="Name one of the table's columns.")
    text = source.text_column or "text"
    if text not in names:
        raise Unreadable(NO_COLUMN, f"set corpus.text_column to one of its columns: {', '.join(map(str, names))}")
    return text, source.title_column or "title"
