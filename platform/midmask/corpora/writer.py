"""The files of a corpus artifact. Their bytes depend on the rows alone, not on how these were cut into blocks."""

from collections.abc import Iterator
from itertools import chain, count, islice

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.artifact import Place

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
        with (place / f"{number:05d}.parquet").writing() as stream:
            rows += _write(chain([first], islice(groups, SHARD_GROUPS - 1)), stream, schema)
    raise AssertionError("count() has no end")


def write_table(tables: Iterator[pa.Table], place: Place, schema: pa.Schema) -> int:
    """Writes one file of any number of rows, none included."""
    with place.writing() as stream:
        return _write(regroup(tables, schema), stream, schema)


def _write(groups: Iterator[pa.Table], stream: object, schema: pa.Schema) -> int:
    rows = 0
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for group in groups:
            writer.write_table(group)
            rows += len(group)
    return rows
