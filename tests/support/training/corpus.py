"""A small corpus of made-up words."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PASSAGES = 300
QUERIES = 60


def write_corpus(folder: Path, *, passages: int = PASSAGES, shard: int = 120) -> None:
    """Passages of 5 to 40 words; query i asks for passage i with three of its words; every fourth query is dev."""
    random_ = random.Random(1)
    words = ["".join(random_.choices("abcdefghijklmnop", k=random_.randint(2, 7))) for _ in range(400)]
    texts = [" ".join(random_.choices(words, k=random_.randint(5, 40))) for _ in range(passages)]
    (folder / "docs").mkdir(parents=True)
    for number, first in enumerate(range(0, passages, shard)):
        rows = range(first, min(first + shard, passages))
        docs = [{"doc_id": f"d{row}", "title": "", "text": texts[row]} for row in rows]
        pq.write_table(pa.Table.from_pylist(docs), folder / "docs" / f"{number:05d}.parquet", row_group_size=50)
    queries = [{"query_id": f"q{row}", "text": " ".join(texts[row].split()[:3])} for row in range(QUERIES)]
    pq.write_table(pa.Table.from_pylist(queries), folder / "queries.parquet")
    qrels = [("train" if row % 4 else "dev", f"q{row}", f"d{row}", 1) for row in range(QUERIES)]
    schema = pa.schema({"split": pa.string(), "query_id": pa.string(), "doc_id": pa.string(), "grade": pa.int32()})
    rows = [dict(zip(schema.names, row, strict=True)) for row in qrels]
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "qrels.parquet")
