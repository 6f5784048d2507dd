"""A prepared corpus as a BEIR folder, which other tools read: `corpus.jsonl.gz`, `queries.jsonl.gz`, `qrels/SPLIT.tsv`
with BEIR's header. Read again, in official splits, it gives the same passages, queries and judgements.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from midmask.artifact import Place

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
    with (corpus / "qrels.parquet").reading() as stream:
        qrels = pq.read_table(stream)
    for split in pc.unique(qrels["split"]).to_pylist():
        own = qrels.filter(pc.equal(qrels["split"], split))
        columns = [own[name].to_pylist() for name in ("query_id", "doc_id", "grade")]
        write_qrels(folder / "qrels" / f"{split}.tsv", zip(*columns, strict=True))


def _read_rows(place: Place) -> Iterator[dict[str, Any]]:
    with place.reading() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(batch_size=2_048):
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
