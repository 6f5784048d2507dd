"""Queries that a file gives, by passage.

rows.parquet       row of the passage in the corpus, text; in blocks, each sorted by row, so that a passage's are found
given.json         how many lines were read, and how many were kept
quarantine.jsonl   every line that was not kept, with the reason
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from midmask.corpora.opening import text_lines
from midmask.store.place import Place
from midmask.store.tables import read_table, writing_table

BLOCK = 1 << 18
"""Lines that are sorted by row at a time."""

SCHEMA = pa.schema([("row", pa.int64()), ("text", pa.string())])


class GivenLine(NamedTuple):
    """One line of a file: a passage and its texts, or the fault of the line and its text."""

    number: int
    doc_id: str
    texts: list[str]
    fault: str | None = None


def read_file(place: Place) -> Iterator[GivenLine]:
    """The lines of a file of queries, plain or gzip'd; a line without a query has a fault.

    Raises:
        UserError: as `corpora.opening.text_lines`.
    """
    for number, text in text_lines(place, errors="replace"):
        try:
            doc_id, queries = _passage_and_queries(text)
            "".join([doc_id, *queries]).encode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON can write as an escape
            yield GivenLine(number, "", [text], "invalid UTF-8")
            continue
        except (ValueError, LookupError, RecursionError):
            yield GivenLine(number, "", [text], "malformed line")
            continue
        filled = [query.strip() for query in queries if query.strip()]
        yield GivenLine(number, doc_id, filled or [text], None if filled else "no query")


def _passage_and_queries(line: str) -> tuple[str, list[str]]:
    """Parses {"doc_id", "queries"}, {"doc_id", "query"} or doc_id<TAB>query; which of both is read off each line."""
    if line.lstrip().startswith("{"):
        row = json.loads(line)
        doc_id = row["doc_id"] if "doc_id" in row else row["_id"]
        queries = row["queries"] if "queries" in row else [row["query"]]
    else:
        doc_id, query = line.split("\t", 1)
        queries = [query]
    if not isinstance(doc_id, str | int) or not isinstance(queries, list):
        raise ValueError("an id is a text or a number, and queries are a list")
    if not all(isinstance(query, str) for query in queries):
        raise ValueError("a query is a text")
    return str(doc_id), queries


def sort_by_row(lines: Iterator[GivenLine], corpus: Place, out: Place) -> None:
    """Writes the files that the module names; given.json last, and nothing at all if it is there already."""
    if (out / "given.json").exists():
        return
    rows: dict[str, int] = {}
    for name in (corpus / "docs").names():
        for doc_id in read_table(corpus / "docs" / name, ["doc_id"])["doc_id"].to_pylist():
            rows[doc_id] = len(rows)
    counts: Counter[str] = Counter()
    with (
        (out / "quarantine.jsonl").writing() as quarantine,
        writing_table(out / "rows.parquet", SCHEMA) as writer,
    ):
        while block := list(islice(lines, BLOCK)):
            kept = _keep_known(block, rows, quarantine, counts)
            kept.sort(key=itemgetter(0))  # a passage's texts stay in their order
            columns = [[row for row, _ in kept], [text for _, text in kept]]
            writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=1 << 14)
    (out / "given.json").write_json({"lines": counts.total(), **counts})


def _keep_known(
    block: list[GivenLine], rows: dict[str, int], quarantine: Any, counts: Counter[str]
) -> list[tuple[int, str]]:
    """(row of the passage, text) of the good lines; the others are quarantined. rows: of the corpus, by passage."""
    kept: list[tuple[int, str]] = []
    for line in block:
        fault = line.fault or (None if line.doc_id in rows else "unknown id")
        counts[fault or "kept"] += 1
        if fault:
            entry = {"kind": fault, "line": line.number, "doc_id": line.doc_id, "text": line.texts[0][:1000]}
            quarantine.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        else:
            kept += [(rows[line.doc_id], text) for text in line.texts]
    return kept


def read_given(out: Place, first: int, count: int) -> list[list[str]]:
    """The texts of the passages first … first + count - 1, each in the order in which they were given."""
    filters = [("row", ">=", first), ("row", "<", first + count)]
    table = read_table(out / "rows.parquet", filters=filters)
    texts: list[list[str]] = [[] for _ in range(count)]
    for row, text in zip(table["row"].to_pylist(), table["text"].to_pylist(), strict=True):
        texts[row - first].append(text)
    return texts
