"""The Ray Data reader gives what the one-process reader gives, from any step on."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.backend.stream import ray_reader
from midmask.derived.span_documents import SpansConfig
from midmask.derived.spans import SPANS
from midmask.tokens import TokensConfig, tokenise
from midmask.training.contexts import SpanExamples
from midmask.training.examples import Examples, PassageExamples
from midmask.training.order import Order, local_reader
from midmask.training.packing import PackedExamples
from midmask.training.pairs import PairExamples
from tests.support.training.corpus import write_corpus
from tests.support.training.examples import write_weights


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Place]:
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder / "corpus")
    corpus, tokens = Place(f"file://{folder}/corpus"), Place(f"file://{folder}/tokens")
    config = TokensConfig(vocabulary_size=500, max_length=48, query_length=8)
    tokenise(config, {"corpus": Artifact(corpus, {})}, tokens)
    return corpus, tokens


def examples_of(kind: str, corpus: Place, tokens: Place, folder: Path) -> Examples:
    """What a run may read, made from the corpus where it has to be."""
    made = Place(f"file://{folder}/made")
    inputs = {"corpus": Artifact(corpus, {}), "tokens": Artifact(tokens, {})}
    if kind == "pairs":
        return PairExamples(tokens, corpus, "train", "f", per_query=2, query_length=8, passage_length=20)
    if kind == "packed, weighted":
        return PackedExamples(tokens, "f", 64, write_weights(tokens, folder))
    if kind == "spans":
        SPANS(SpansConfig(span_length=16), inputs, made)
        return SpanExamples(made, "f", "mixed")
    raise KeyError(kind)


@pytest.mark.parametrize("kind", ["pairs", "packed, weighted", "spans"])
def test_the_ray_reader_equals_the_one_process_reader(
    places: tuple[Place, Place], ray_local: None, kind: str, tmp_path: Path
) -> None:
    corpus, tokens = places
    order = Order(examples_of(kind, corpus, tokens, tmp_path), batch_size=9, seed=3, rank=1, size=2, start=13, stop=80)
    steps = 0
    for (step, texts), (expected_step, expected) in itertools.zip_longest(ray_reader(order), local_reader(order)):
        assert step == expected_step and texts.keys() == expected.keys()
        for name, text in texts.items():
            for ours, theirs in zip(text, expected[name], strict=True):
                assert (ours is None) == (theirs is None)
                if ours is None:
                    continue
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)
        steps += 1
    assert steps == 67


def test_an_error_while_reading_reaches_the_reader(places: tuple[Place, Place], ray_local: None) -> None:
    order = Order(PassageExamples(places[1] / "nowhere", "f"), batch_size=9, seed=3, rank=0, size=1, start=0, stop=9)
    with pytest.raises(Exception, match="nowhere"):
        list(ray_reader(order))
