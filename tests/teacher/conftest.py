"""One corpus with lists, and one teacher that was trained on it."""

import pytest

from midmask.artifact import Artifact, Place
from midmask.teacher.teach import teach
from tests.support.teacher.lists import teaching, write_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory) -> dict[str, Artifact]:
    return write_inputs(Place(str(tmp_path_factory.mktemp("lists"))))


@pytest.fixture(scope="session")
def teacher(inputs, tmp_path_factory) -> Artifact:
    out = Place(str(tmp_path_factory.mktemp("teacher")))
    result = teach(teaching(steps=80, dropout=0.0), inputs, out, log=lambda done, values: None)
    return Artifact(out, {"fingerprint": "teacher", "result": result})
