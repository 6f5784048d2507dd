"""A prepared corpus as a BEIR folder, which other tools read: `corpus.jsonl.gz`, `queries.jsonl.gz`, `qrels/SPLIT.tsv`
with BEIR's header. Read again, in official splits, it gives the same passages, queries and judgements.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
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
        for row in _rows(corpus / "docs" / shard)
    )
    _write_lines(folder / "corpus.jsonl.gz", passages)
    queries = ({"_id": row["query_id"], "text": row["text"]} for row in _rows(corpus / "queries.parquet"))
    _write_lines(folder / "queries.jsonl.gz", queries)
    with (corpus / "qrels.parquet").reading() as stream:
        qrels = pq.read_table(stream)
    for split in pc.unique(qrels["split"]).to_pylist():
        _write_qrels(folder / "qrels" / f"{split}.tsv", qrels.filter(pc.equal(qrels["split"], split)))


def _rows(place: Place) -> Iterator[dict[str, Any]]:
    with place.reading() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(batch_size=2_048):
            yield from batch.to_pylist()


def _write_lines(place: Place, rows: Iterable[dict[str, Any]]) -> None:
    """Without name and time in the gzip header: equal rows give equal bytes."""
    with place.writing() as stream, gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
        for row in rows:
            packed.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _write_qrels(place: Place, rows: pa.Table) -> None:
    columns = [rows[name].to_pylist() for name in ("query_id", "doc_id", "grade")]
    lines = [f"{query}\t{doc}\t{grade}\n" for query, doc, grade in zip(*columns, strict=True)]
    place.write("".join([HEADER, *lines]).encode())
