import pytest

from midmask.artifact import Artifact
from tests.support.derived.documents import inputs_at, write_inputs


@pytest.fixture(scope="session")
def inputs(made_once) -> dict[str, Artifact]:
    return inputs_at(made_once("derived-inputs", write_inputs))
