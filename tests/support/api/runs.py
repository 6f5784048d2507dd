"""One run with fine-tuning and one without, for all tests of the Python API, whose conftest names these fixtures."""

from pathlib import Path

import pytest

import midmask
from tests.support.api import toy


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def corpus() -> midmask.Corpus:
    return midmask.Corpus.from_texts(toy.texts(), queries=toy.queries(), relevant=range(toy.DOCUMENTS))


@pytest.fixture(scope="session")
def run(corpus: midmask.Corpus, store: Path) -> midmask.Run:
    return midmask.train("retromae", corpus, seed=5, settings=toy.SETTINGS, storage=store)


@pytest.fixture(scope="session")
def untuned(store: Path) -> midmask.Run:
    """The middle training alone, of texts without queries."""
    only = midmask.Corpus.from_texts(toy.texts(), name="alone")
    return midmask.train("retromae", only, settings=toy.SETTINGS, storage=store)
