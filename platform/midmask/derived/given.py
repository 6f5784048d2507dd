"""Texts that are given from outside, by passage: queries from a file or from the judgements, spans or vectors from a
file; sorted into the corpus's shards.

    given.parquet      shard, row within it, text; in blocks, each sorted by shard, so that a shard's rows are found
    given.json         how many lines were read, how many were kept; a line with a fault may still be kept for the rest
    quarantine.jsonl   every line that was not kept, with the reason
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Place
from midmask.corpora.contents import form_by_name
from midmask.corpora.ids import IdTable
from midmask.retrieve.lines import text_lines
from midmask.retrieve.selection import relevant_passages

BLOCK = 1 << 18
"""Lines that are sorted by shard at a time."""

SCHEMA = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("text", pa.string())])
LAYOUT = 'wanted is a line {"doc_id": …, "queries": […]}, {"doc_id": …, "query": …} or doc_id<TAB>query'


class GivenLine(NamedTuple):
    """One line of a file: a passage and its texts, or the fault of the line and its text."""

    number: int
    doc_id: str
    texts: list[str]
    fault: str | None = None


def read_file(place: Place) -> Iterator[GivenLine]:
    """The lines of a JSON-lines or tab-separated file of queries; which of both is read off each line.

    Raises:
        UserError: as `retrieve.lines.text_lines`.
    """
    lines = text_lines(
        place, name=f"pseudo_queries.source = file:{place}", errors="replace", form=form_by_name(place.base)
    )
    return (_parse_line(number, text) for number, text in lines)


def _parse_line(number: int, text: str) -> GivenLine:
    try:
        if text.lstrip().startswith("{"):
            row = json.loads(text)
            doc_id = row["doc_id"] if "doc_id" in row else row["_id"]
            queries = row["queries"] if "queries" in row else [row["query"]]
        else:
            doc_id, query = text.split("\t", 1)
            queries = [query]
    except (ValueError, KeyError, RecursionError):
        return GivenLine(number, "", [text], "malformed line")
    if not isinstance(doc_id, str | int) or not isinstance(queries, list) or not all(map(_is_text, queries)):
        return GivenLine(number, "", [text], "malformed line")
    if not all(map(is_utf8, [str(doc_id), *queries])):
        return GivenLine(number, "", [text], "invalid UTF-8")
    kept = [query.strip() for query in queries if query.strip()]
    return GivenLine(number, str(doc_id), kept) if kept else GivenLine(number, str(doc_id), [text], "no query")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogates, which JSON can write as escapes."""
    return text.isascii() or not re.search("[\ud800-\udfff]", text)


def judged_queries(corpus: Place, split: str) -> Iterator[GivenLine]:
    """Every passage of the collection that is judged relevant to a query of the split, with that query."""
    qrels = relevant_passages(corpus, split)
    with (corpus / "queries.parquet").reading() as stream:
        queries = pq.read_table(stream, columns=["query_id", "text"])
    place = pc.index_in(qrels["query_id"], value_set=queries["query_id"])
    texts = queries["text"].take(place)
    for number, (doc_id, text) in enumerate(zip(qrels["doc_id"].to_pylist(), texts.to_pylist(), strict=True), start=1):
        yield GivenLine(number, doc_id, [text])


def sort_by_shard(lines: Iterator[GivenLine], corpus: Place, out: Place) -> None:
    """Writes the files that the module names; given.json last, and nothing at all if it is there already."""
    if (out / "given.json").exists():
        return
    ids, starts = IdTable(), [0]
    for name in (corpus / "docs").names():
        with (corpus / "docs" / name).reading() as stream:
            ids.add(pq.read_table(stream, columns=["doc_id"])["doc_id"].to_pylist())
        starts.append(len(ids))
    counts: Counter[str] = Counter()
    lines_read, last = 0, 0
    with (out / "quarantine.jsonl").writing() as quarantine, (out / "given.parquet").writing() as stream:
        with pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
            while block := list(islice(lines, BLOCK)):
                numbers = np.array([last, *(line.number for line in block)])
                lines_read, last = lines_read + int((np.diff(numbers) != 0).sum()), numbers[-1]
                kept = _keep_known(block, ids, quarantine, counts)
                writer.write_table(_by_shard(kept, np.array(starts)), row_group_size=1 << 14)
    (out / "given.json").write_json({"lines": lines_read, **counts})


def _keep_known(block: list[GivenLine], ids: IdTable, quarantine: Any, counts: Counter[str]) -> list[tuple[int, str]]:
    """(row of the passage, text) of the good lines; the others are quarantined."""
    kept: list[tuple[int, str]] = []
    for line, row in zip(block, ids.rows([line.doc_id for line in block]).tolist(), strict=True):
        fault = line.fault or ("unknown id" if row < 0 else None)
        counts[fault or "kept"] += 1
        if fault:
            entry = {"kind": fault, "line": line.number, "doc_id": line.doc_id, "text": line.texts[0][:1000]}
            quarantine.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        else:
            kept += [(row, text) for text in line.texts]
    return kept


def _by_shard(kept: list[tuple[int, str]], starts: Any) -> pa.Table:
    rows = np.array([row for row, _ in kept], np.int64)
    shards = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(rows, kind="stable")
    texts = pa.array([text for _, text in kept], pa.string()).take(pa.array(order))
    columns = [shards[order].astype(np.int32), (rows - starts[shards])[order], texts]
    return pa.table(columns, schema=SCHEMA)


def read_given(out: Place, shard: int, first: int, count: int) -> list[list[str]]:
    """The texts of a shard's passages first … first + count - 1, each in the order in which they were given."""
    wanted = [("shard", "=", shard), ("row", ">=", first), ("row", "<", first + count)]
    with (out / "given.parquet").reading() as stream:
        table = pq.read_table(stream, filters=wanted)
    texts: list[list[str]] = [[] for _ in range(count)]
    for row, text in zip(table["row"].to_pylist(), table["text"].to_pylist(), strict=True):
        texts[row - first].append(text)
    return texts


def count_given(out: Place) -> tuple[int, int]:
    """How many passages were given anything, and how many texts."""
    with (out / "given.parquet").reading() as stream:
        table = pq.read_table(stream, columns=["shard", "row"])
    return table.group_by(["shard", "row"]).aggregate([]).num_rows, len(table)
