"""Fixtures of tests that read one small collection: its artifacts, and a place for what a step writes.

A conftest imports them by name.
"""

from pathlib import Path

import pytest

from midmask.store.artifact import Artifact
from midmask.store.place import Place
from tests.support.retrieve.collection import write_all


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Corpus, tokens and a random encoder."""
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


@pytest.fixture
def out(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "out"))
