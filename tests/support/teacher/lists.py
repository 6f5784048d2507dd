"""A corpus in which relevance can be read off a pair: the relevant passage has the query's colour."""

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.encoders.backbone import BackboneConfig
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.tables import read_table
from midmask.teacher.teach import TeachConfig
from midmask.text.tokens import TokensConfig, tokenise
from midmask.training.optimiser import TrainConfig
from tests.support.retrieve import collection

PASSAGES, QUERIES, NEGATIVES = 120, 40, 6
WORDS = ["the", "dog", "sat", "on", "mat", "house", "ran", "fast", "cat", "tree"]
COLOURS = ["red", "blue", "green"]


def write_inputs(root: Place) -> dict[str, Artifact]:
    """corpus, tokens, negatives. Query i and passage 3i have a colour; its negatives are of other colours."""
    draw = random.Random(4)

    def text(colour: int, words: int) -> str:
        return " ".join([COLOURS[colour], *draw.choices(WORDS, k=words)])

    ids = [f"d{row:03d}" for row in range(PASSAGES)]
    colours = [draw.randrange(len(COLOURS)) for _ in range(PASSAGES)]
    corpus = collection.write_parts(
        root / "corpus",
        docs=[(ids[row], f"title{row}", text(colours[row], draw.randint(2, 12))) for row in range(PASSAGES)],
        queries=[(f"q{query:02d}", text(colours[3 * query], 2)) for query in range(QUERIES)],
        qrels=[("dev" if query % 5 == 0 else "train", f"q{query:02d}", ids[3 * query], 1) for query in range(QUERIES)],
    )
    tokens = root / "tokens"
    result = tokenise(TokensConfig(vocabulary_size=300, max_length=32, query_length=10), {"corpus": corpus}, tokens)
    rows = []
    for query in range(QUERIES):
        others = [row for row in range(PASSAGES) if colours[row] != colours[3 * query]]
        for rank, row in enumerate(draw.sample(others, NEGATIVES), start=1):
            rows.append((f"q{query:02d}", ids[row], rank, 1 / rank, "made"))
    write_negatives(root / "negatives", rows)
    return {
        "corpus": corpus,
        "tokens": Artifact(tokens, {"fingerprint": "tokens", "result": result}),
        "negatives": Artifact(root / "negatives", {"fingerprint": "negatives", "result": {}}),
    }


def write_negatives(place: Place, rows: list[tuple[str, str, int, float, str]]) -> None:
    names = ["query_id", "doc_id", "rank", "score", "source"]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names=names)
    with (place / "negatives.parquet").writing() as stream:
        pq.write_table(table, stream)


def teaching(*, dropout: float = 0.1, r_drop: float = 0.0, **train: Any) -> TeachConfig:
    """A tiny cross-encoder on lists of 1 + 3, batches of 8 queries."""
    wanted = {"steps": 12, "batch_size": 8, "learning_rate": 1e-3, "checkpoint_every": 5, "threads": 1, **train}
    backbone, loss = BackboneConfig(dropout=dropout), ListwiseRanking.Config(max_length=40, r_drop=r_drop)
    return TeachConfig(backbone=backbone, loss=loss, train=TrainConfig(**wanted), per_query=3, query_length=10)


def texts_of(inputs: dict[str, Artifact]) -> tuple[dict[str, str], dict[str, str]]:
    """Query id -> text, passage id -> text."""
    queries = read_table(inputs["corpus"].place / "queries.parquet").to_pylist()
    return {row["query_id"]: row["text"] for row in queries}, collection.texts_of(inputs["corpus"])
