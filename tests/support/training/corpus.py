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
        table = pa.table(
            {"doc_id": [f"d{row}" for row in rows], "title": [""] * len(rows), "text": [texts[row] for row in rows]}
        )
        pq.write_table(table, folder / "docs" / f"{number:05d}.parquet", row_group_size=50)
    queries = [" ".join(texts[row].split()[:3]) for row in range(QUERIES)]
    pq.write_table(
        pa.table({"query_id": [f"q{row}" for row in range(QUERIES)], "text": queries}), folder / "queries.parquet"
    )
    qrels = pa.table(
        {
            "split": ["dev" if row % 4 == 0 else "train" for row in range(QUERIES)],
            "query_id": [f"q{row}" for row in range(QUERIES)],
            "doc_id": [f"d{row}" for row in range(QUERIES)],
            "grade": pa.array([1] * QUERIES, pa.int32()),
        }
    )
    pq.write_table(qrels, folder / "qrels.parquet")
