from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place
from tests.retrieve.collection import write_all


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_all(Place(str(tmp_path_factory.mktemp("collection"))))


@pytest.fixture
def out(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "out"))
