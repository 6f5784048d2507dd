"""A server for the tests of this folder, and searchers over the small collection for each kind of vectors."""

from collections.abc import Iterator

import pytest

from midmask.artifact import Artifact, Place
from midmask.retrieve.searcher import Searcher
from tests.support.postgres import PASSWORD, postgres
from tests.support.retrieve.collection import REPRESENTATIONS, encoded, write_bi_encoder
from tests.support.retrieve.fixtures import inputs

__all__ = ["inputs"]


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    with postgres() as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        yield found


@pytest.fixture(scope="package")
def searchers(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Searcher]:
    """Of 300 passages in 8 blocks, by kind of vectors."""
    tokens = Artifact(inputs["tokens"].place, {**inputs["tokens"].record, "config": {"query_length": 8}})
    found = {}
    for kind, representation in REPRESENTATIONS.items():
        root = Place(str(tmp_path_factory.mktemp(kind)))
        model = write_bi_encoder(root / "model", inputs["tokens"], representation)
        vectors = encoded({**inputs, "model": model}, root)["passages"]
        own = Artifact(vectors.place, {**vectors.record, "fingerprint": f"vectors of {kind}"})
        found[kind] = Searcher(model=model, corpus=inputs["corpus"], tokens=tokens, passages=own)
    return found
