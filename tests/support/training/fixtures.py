"""Fixtures of tests that train: a small corpus of made-up words, and what follows from it. A conftest imports them by
name.

One process makes each for all, so nothing may be written to them.
"""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midmask.queries.document_spans import SPANS, SpansConfig
from midmask.queries.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.retrieve.blocks import passage_blocks
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from tests.support.retrieve.collection import write_parts

PASSAGES, QUERIES = 300, 60


def write_corpus(folder: Path) -> None:
    """Passages of 5 to 40 words; query i asks for passage i with three of its words; every fourth query is dev."""
    random_ = random.Random(1)
    words = ["".join(random_.choices("abcdefghijklmnop", k=random_.randint(2, 7))) for _ in range(400)]
    texts = [" ".join(random_.choices(words, k=random_.randint(5, 40))) for _ in range(PASSAGES)]
    write_parts(
        Place(str(folder)),
        docs=[(f"d{row}", "", text) for row, text in enumerate(texts)],
        queries=[(f"q{row}", " ".join(texts[row].split()[:3])) for row in range(QUERIES)],
        qrels=[("train" if row % 4 else "dev", f"q{row}", f"d{row}", 1) for row in range(QUERIES)],
    )


def all_passages(tokens: Place) -> tuple[list[str], list[list[int]]]:
    table = pa.concat_tables([pq.read_table(f"{tokens}/passages/{name}") for name in (tokens / "passages").names()])
    return table["doc_id"].to_pylist(), table["ids"].to_pylist()


def write_weights(tokens: Place, folder: Path) -> Place:
    """The weight of each token is its id over 4096, which half precision holds exactly."""
    (folder / "weights").mkdir(parents=True)
    for name in (tokens / "passages").names():
        ids = pq.read_table(f"{tokens}/passages/{name}")["ids"].to_pylist()
        weights = [np.array(row, np.float16) / np.float16(4096) for row in ids]
        table = pa.table({"weights": pa.array(weights, pa.list_(pa.float16()))})
        pq.write_table(table, folder / "weights" / name, row_group_size=70)
    return Place(str(folder))


def write_vectors(tokens: Place, folder: Path) -> None:
    """Random vectors of MiniLM's width, a file for each row group of the tokens, as an encoding has them."""
    random_ = np.random.default_rng(2)
    (folder / "dense").mkdir(parents=True)
    for block in passage_blocks(tokens):
        np.save(folder / "dense" / f"{block.name}.npy", random_.standard_normal((block.rows, 384), np.float32))


@pytest.fixture(scope="session")
def vectors(tokens: Place, made_once) -> Place:
    """A teacher's vectors of the passages."""
    return Place(str(made_once("training-vectors", lambda folder: write_vectors(tokens, folder))))


@pytest.fixture(scope="session")
def corpus(made_once) -> Place:
    return Place(str(made_once("training-corpus", write_corpus)))


def artifacts(corpus: Place, **others: Place) -> dict[str, Artifact]:
    result = {"passages": PASSAGES}
    places = {"corpus": corpus, **others}.items()
    return {name: Artifact(place, {"fingerprint": name, "result": result}) for name, place in places}


@pytest.fixture(scope="session")
def tokens(corpus: Place, made_once) -> Place:
    config, inputs = TokensConfig(vocabulary_size=500, max_length=48, query_length=8), artifacts(corpus)
    return Place(str(made_once("training-tokens", lambda folder: tokenise(config, inputs, Place(str(folder))))))


@pytest.fixture(scope="session")
def spans(corpus: Place, tokens: Place, made_once) -> Place:
    """Documents cut into spans of at most 16 tokens."""
    config, inputs = SpansConfig(span_length=16, short_share=0.0), artifacts(corpus, tokens=tokens)
    return Place(str(made_once("training-spans", lambda folder: SPANS(config, inputs, Place(str(folder))))))


@pytest.fixture(scope="session")
def pseudo_queries(corpus: Place, tokens: Place, made_once) -> Place:
    """The passages' own beginnings."""
    config, inputs = PseudoQueriesConfig(max_length=8), artifacts(corpus, tokens=tokens)
    return Place(str(made_once("training-queries", lambda folder: PSEUDO_QUERIES(config, inputs, Place(str(folder))))))
