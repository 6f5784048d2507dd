"""A collection of made-up words in memory, settings that train a recipe on it within seconds, and one run with
fine-tuning and one without for all tests of the Python API, whose conftest names these fixtures.
"""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

import midmask

SETTINGS: Mapping[str, object] = {
    "tokens.vocabulary_size": 300, "tokens.max_length": 24, "tokens.query_length": 12,
    "pretrain.steps": 6, "pretrain.batch_size": 8, "stages.0.train.steps": 6, "stages.0.train.batch_size": 8,
}  # fmt: skip
DOCUMENTS = 80


def texts() -> list[str]:
    """Documents of 5 to 20 words; no two are alike."""
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 7))) for _ in range(200)]
    return [" ".join(draw.choices(words, k=draw.randint(5, 20))) for _ in range(DOCUMENTS)]


def queries() -> list[str]:
    """Query i holds three words of document i."""
    return [" ".join(text.split()[:3]) for text in texts()]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def corpus() -> midmask.Corpus:
    return midmask.Corpus.from_texts(texts(), queries=queries(), relevant=range(DOCUMENTS))


@pytest.fixture(scope="session")
def run(corpus: midmask.Corpus, store: Path) -> midmask.Run:
    return midmask.train("retromae", corpus, seed=5, settings=SETTINGS, storage=store)


@pytest.fixture(scope="session")
def untuned(store: Path) -> midmask.Run:
    """The middle training alone, of texts without queries."""
    only = midmask.Corpus.from_texts(texts(), name="alone")
    return midmask.train("retromae", only, settings=SETTINGS, storage=store)
