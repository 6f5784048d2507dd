"""A small corpus of made-up words, tokenised, on which training can be run in seconds."""

import pytest

from midmask.artifact import Artifact, Place
from midmask.tokens import TokensConfig, tokenise
from tests.support.training.corpus import write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return Place(str(folder))


@pytest.fixture(scope="session")
def tokens(corpus: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(str(tmp_path_factory.mktemp("tokens")))
    config = TokensConfig(vocabulary_size=500, max_length=48, query_length=8)
    tokenise(config, {"corpus": Artifact(corpus, {"fingerprint": "c", "result": {}})}, place)
    return place
