import pytest

from midmask.artifact import Artifact
from tests.support.derived.documents import write_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory) -> dict[str, Artifact]:
    return write_inputs(tmp_path_factory.mktemp("derived"))
