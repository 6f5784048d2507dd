"""The files of a corpus artifact, and the same collection as a BEIR folder, which other tools read.

The artifact's bytes depend on the rows alone, not on how these were cut into blocks. A BEIR folder (`corpus.jsonl.gz`,
`queries.jsonl.gz`, `qrels/SPLIT.tsv` with a header) that is read again, in official splits, gives the same rows.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from midmask.store.place import Place
from midmask.store.tables import read_batches, read_table, writing_table

GROUP_ROWS = 2_048
SHARD_GROUPS = 8
QUARANTINE = "quarantine.jsonl"
DOCS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
QRELS = pa.schema([("split", pa.string()), ("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())])
ALIASES = pa.schema([("doc_id", pa.string()), ("alias", pa.string())])

ANSWERS = pa.schema([("split", pa.string()), ("query_id", pa.string()), ("answers", pa.list_(pa.string()))])
SELF_MATCHES = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])
MISSING_PASSAGES = pa.schema([("doc_id", pa.string())])


def regroup(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows, with the schema's columns only, in tables of exactly 2,048 rows; the last may be shorter."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        table = table.select(schema.names)
        while rows + len(table) >= GROUP_ROWS:
            cut = GROUP_ROWS - rows
            yield _one_chunk([*waiting, table.slice(0, cut)], schema)
            waiting, rows, table = [], 0, table.slice(cut)
        if len(table):
            waiting.append(table)
            rows += len(table)
    if rows:
        yield _one_chunk(waiting, schema)


def _one_chunk(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables).cast(schema).combine_chunks()


def write_shards(tables: Iterator[pa.Table], place: Place, schema: pa.Schema = DOCS) -> int:
    """Writes shards 00000.parquet, 00001.parquet, ... of at most 16,384 rows; gives the number of rows.

    Only one row group is held in memory, and an error in `tables` leaves no half-written shard behind.
    """
    groups = regroup(tables, schema)
    rows = 0
    for number in count():
        first = next(groups, None)
        if first is None:
            return rows
        rows += _write(chain([first], islice(groups, SHARD_GROUPS - 1)), place / f"{number:05d}.parquet", schema)
    raise AssertionError("count() has no end")


def write_tables(tables: Iterator[pa.Table], place: Place, schema: pa.Schema) -> int:
    """Writes one file of any number of rows, none included."""
    return _write(regroup(tables, schema), place, schema)


def _write(groups: Iterator[pa.Table], place: Place, schema: pa.Schema) -> int:
    rows = 0
    with writing_table(place, schema) as writer:
        for group in groups:
            writer.write_table(group)
            rows += len(group)
    return rows


HEADER = "query-id\tcorpus-id\tscore\n"


def export_beir(corpus: Place, folder: Place) -> None:
    """Writes the files of a corpus artifact's folder; passages stream through, a row group at a time.

    Slices are splits of their own (`qrels/test.head.tsv`). Answer strings have no place in the layout.
    """
    passages = (
        {"_id": row["doc_id"], "title": row["title"], "text": row["text"]}
        for shard in (corpus / "docs").names()
        for row in _read_rows(corpus / "docs" / shard)
    )
    write_lines(folder / "corpus.jsonl.gz", passages)
    queries = ({"_id": row["query_id"], "text": row["text"]} for row in _read_rows(corpus / "queries.parquet"))
    write_lines(folder / "queries.jsonl.gz", queries)
    qrels = read_table(corpus / "qrels.parquet")
    for split in pc.unique(qrels["split"]).to_pylist():
        own = qrels.filter(pc.equal(qrels["split"], split))
        columns = [own[name].to_pylist() for name in ("query_id", "doc_id", "grade")]
        write_qrels(folder / "qrels" / f"{split}.tsv", zip(*columns, strict=True))


def _read_rows(place: Place) -> Iterator[dict[str, Any]]:
    for batch in read_batches(place, 2_048):
        yield from batch.to_pylist()


def write_lines(place: Place, rows: Iterable[dict[str, Any]]) -> None:
    """Writes JSON objects, one a line, as gzip without name and time in its header: equal rows give equal bytes."""
    with place.writing() as stream, gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
        for row in rows:
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def write_qrels(place: Place, judgements: Iterable[tuple[str, str, int]]) -> None:
    """Writes (query id, document id, grade) with BEIR's header."""
    lines = [f"{query}\t{doc}\t{grade}\n" for query, doc, grade in judgements]
    place.write("".join([HEADER, *lines]).encode())
