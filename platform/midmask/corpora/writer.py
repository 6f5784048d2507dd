"""The files of a corpus artifact, and the same collection as a BEIR folder, which other tools read.

The artifact's bytes depend on the rows alone, not on how these were cut into blocks. A BEIR folder (`corpus.jsonl.gz`,
`queries.jsonl.gz`, `qrels/SPLIT.tsv` with a header) that is read again, in official splits, gives the same rows.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from midmask.store.place import Place
from midmask.store.tables import read_passages, read_table, writing_table

GROUP_ROWS = 2_048
SHARD_GROUPS = 8
QUARANTINE = "quarantine.jsonl"
DOCS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
QRELS = pa.schema([("split", pa.string()), ("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())])

ANSWERS = pa.schema([("split", pa.string()), ("query_id", pa.string()), ("answers", pa.list_(pa.string()))])
SELF_MATCHES = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])
MISSING_PASSAGES = pa.schema([("doc_id", pa.string())])


def regroup(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same passages, with the columns of DOCS only, in tables of exactly 2,048 rows; the last may be shorter."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        table = table.select(DOCS.names)
        while rows + len(table) >= GROUP_ROWS:
            cut = GROUP_ROWS - rows
            yield _one_chunk([*waiting, table.slice(0, cut)], DOCS)
            waiting, rows, table = [], 0, table.slice(cut)
        if len(table):
            waiting.append(table)
            rows += len(table)
    if rows:
        yield _one_chunk(waiting, DOCS)


def _one_chunk(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables).cast(schema).combine_chunks()


def write_shards(passages: Iterable[pa.Table], place: Place) -> int:
    """Writes shards 00000.parquet, 00001.parquet, ... of at most 16,384 rows; gives the number of rows.

    Only one row group is held in memory, and an error in `passages` leaves no half-written shard behind.
    """
    groups = regroup(passages)
    rows = 0
    for number, first in enumerate(groups):
        with writing_table(place / f"{number:05d}.parquet", DOCS) as writer:
            for group in chain([first], islice(groups, SHARD_GROUPS - 1)):
                writer.write_table(group)
                rows += len(group)
    return rows


def write_rows(table: pa.Table, place: Place, schema: pa.Schema) -> None:
    """Writes one file of any number of rows, none included, with the schema's columns only."""
    with writing_table(place, schema) as writer:
        if len(table):
            writer.write_table(_one_chunk([table.select(schema.names)], schema), row_group_size=GROUP_ROWS)


HEADER = "query-id\tcorpus-id\tscore\n"


def write_beir(
    folder: Place,
    passages: Iterable[tuple[str, str, str]],
    queries: Iterable[Mapping[str, Any]] | None,
    qrels: Mapping[str, Iterable[tuple[str, str, int]]],
) -> None:
    """Writes a BEIR folder; equal rows give equal bytes.

    Args:
        passages: id, title, text; a stream. queries: rows as their file has them (`_id`, `text`, perhaps `metadata`);
            None: there is no such file. qrels: split -> (query id, passage id, grade).
    """
    rows = ({"_id": doc_id, "title": title, "text": text} for doc_id, title, text in passages)
    write_lines(folder / "corpus.jsonl.gz", rows)
    if queries is not None:
        write_lines(folder / "queries.jsonl.gz", queries)
    for split, judgements in qrels.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", judgements)


def export_beir(corpus: Place, folder: Place) -> None:
    """Writes the files of a corpus artifact's folder; passages stream through, a row group at a time.

    Slices are splits of their own (`qrels/test.head.tsv`). Answer strings have no place in the layout.
    """
    docs = corpus / "docs"
    passages = (
        row for shard in docs.names() for columns in read_passages(docs / shard) for row in zip(*columns, strict=True)
    )
    rows = read_table(corpus / "queries.parquet").to_pylist()
    queries = ({"_id": row["query_id"], "text": row["text"]} for row in rows)
    qrels: dict[str, list[tuple[str, str, int]]] = {}
    for row in read_table(corpus / "qrels.parquet").to_pylist():
        qrels.setdefault(row["split"], []).append((row["query_id"], row["doc_id"], row["grade"]))
    write_beir(folder, passages, queries, qrels)


def write_lines(place: Place, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON objects, one a line, as gzip without name and time in its header: equal rows give equal bytes."""
    with place.writing() as stream, gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
        for row in rows:
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def write_qrels(place: Place, judgements: Iterable[tuple[str, str, int]]) -> None:
    """Writes (query id, document id, grade) with BEIR's header."""
    lines = [f"{query}\t{doc}\t{grade}\n" for query, doc, grade in judgements]
    place.write("".join([HEADER, *lines]).encode())
