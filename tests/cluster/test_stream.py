"""The Ray Data reader gives what the one-process reader gives, from any step on."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from midmask.artifact import Artifact, Place
from midmask.cluster.channel import Channel
from midmask.cluster.stream import ray_reader
from midmask.tokens import TokensConfig, tokenise
from midmask.train.examples import Examples, PairExamples, PassageExamples
from midmask.train.order import Order, local_reader
from tests.train.conftest import write_corpus


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Place]:
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder / "corpus")
    corpus, tokens = Place(f"file://{folder}/corpus"), Place(f"file://{folder}/tokens")
    config = TokensConfig(vocabulary_size=500, max_length=48, query_length=8)
    tokenise(config, {"corpus": Artifact(corpus, {})}, tokens)
    return corpus, tokens


@pytest.mark.parametrize("kind", ["passages", "pairs"])
def test_the_ray_reader_equals_the_one_process_reader(
    places: tuple[Place, Place], ray_local: None, kind: str, tmp_path: Path
) -> None:
    corpus, tokens = places
    examples: Examples = PassageExamples(tokens, "f")
    if kind == "pairs":
        examples = PairExamples(tokens, corpus, "train", "f", per_query=2, query_length=8, passage_length=20)
    order = Order(examples, batch_size=9, seed=3, rank=1, size=2, start=13, stop=80)
    steps = 0
    for (step, texts), (expected_step, expected) in itertools.zip_longest(ray_reader(order), local_reader(order)):
        assert step == expected_step and texts.keys() == expected.keys()
        for name, text in texts.items():
            for ours, theirs in zip(text, expected[name], strict=True):
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)
        steps += 1
    assert steps == 67


def test_an_error_while_reading_reaches_the_reader(places: tuple[Place, Place], ray_local: None) -> None:
    order = Order(PassageExamples(places[1] / "nowhere", "f"), batch_size=9, seed=3, rank=0, size=1, start=0, stop=9)
    with pytest.raises(Exception, match="nowhere"):
        list(ray_reader(order))


def test_a_channel_delivers_every_row_in_order(ray_local: None) -> None:
    channel = Channel.open()
    seen: list[tuple[str, int]] = []
    with channel.forwarding(lambda source, row: seen.append((source, row["n"])), every_s=0.01):
        for n in range(20):
            channel.push("a", [{"n": 2 * n}, {"n": 2 * n + 1}])
    assert seen == [("a", n) for n in range(40)]
    assert channel.drain() == []
