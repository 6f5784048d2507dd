"""Fixtures of tests that train: a small corpus of made-up words, and what follows from it. A conftest imports them by
name.

One process makes each for all, so nothing may be written to them.
"""

import pytest

from midmask.queries.document_spans import SPANS, SpansConfig
from midmask.queries.pseudo_queries import PSEUDO_QUERIES, PseudoQueriesConfig
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.text.tokens import TokensConfig, tokenise
from tests.support.training.corpus import write_corpus


@pytest.fixture(scope="session")
def corpus(made_once) -> Place:
    return Place(str(made_once("training-corpus", write_corpus)))


def artifacts(corpus: Place, **others: Place) -> dict[str, Artifact]:
    places = {"corpus": corpus, **others}
    return {name: Artifact(place, {"fingerprint": name, "result": {"passages": 300}}) for name, place in places.items()}


@pytest.fixture(scope="session")
def tokens(corpus: Place, made_once) -> Place:
    config, inputs = TokensConfig(vocabulary_size=500, max_length=48, query_length=8), artifacts(corpus)
    return Place(str(made_once("training-tokens", lambda folder: tokenise(config, inputs, Place(str(folder))))))


@pytest.fixture(scope="session")
def spans(corpus: Place, tokens: Place, made_once) -> Place:
    """Documents cut into spans of at most 16 tokens."""
    config, inputs = SpansConfig(span_length=16, short_share=0.0), artifacts(corpus, tokens=tokens)
    return Place(str(made_once("training-spans", lambda folder: SPANS(config, inputs, Place(str(folder))))))


@pytest.fixture(scope="session")
def pseudo_queries(corpus: Place, tokens: Place, made_once) -> Place:
    """The passages' own beginnings."""
    config, inputs = PseudoQueriesConfig(max_length=8), artifacts(corpus, tokens=tokens)
    return Place(str(made_once("training-queries", lambda folder: PSEUDO_QUERIES(config, inputs, Place(str(folder))))))
