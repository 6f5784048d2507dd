"""A small corpus of made-up words, tokenised, on which training can be run in seconds."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.artifact import Artifact, Place
from midmask.tokens import TokensConfig, tokenise

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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return Place(str(folder))


@pytest.fixture(scope="session")
def tokens(corpus: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(str(tmp_path_factory.mktemp("tokens")))
    config = TokensConfig(vocabulary_size=500, max_length=48, query_length=8)
    tokenise(config, {"corpus": Artifact(corpus, {"fingerprint": "c", "result": {}})}, place)
    return place
