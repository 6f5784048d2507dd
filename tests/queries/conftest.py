import pytest

from midmask.store.artifact import Artifact
from tests.support.queries.documents import inputs_at, write_inputs


@pytest.fixture(scope="session")
def inputs(made_once) -> dict[str, Artifact]:
    return inputs_at(made_once("derived-inputs", write_inputs))
