"""Excerpts of passages: read slowly beside, drawn evenly, the same wherever and whenever a row is read."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.estimate.lengths import longest_lengths
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.experiment.steps import pretrain_setup
from midmask.identity import override
from midmask.recipes import RECIPES
from midmask.training.examples import PassageExamples
from midmask.training.excerpts import ExcerptExamples
from tests.support.training.examples import all_passages, write_weights

LENGTH = 10


def excerpts(tokens: Place, weights: Place | None = None) -> ExcerptExamples:
    return ExcerptExamples(PassageExamples(tokens, "f", weights), LENGTH)


def test_an_excerpt_is_whole_tokens_in_a_row_between_first_and_last(tokens, tmp_path):
    """And its term weights are those of its tokens."""
    _, ids = all_passages(tokens)
    source = excerpts(tokens, write_weights(tokens, tmp_path)).open()
    rows = np.random.default_rng(0).permutation(source.count)
    text = source.read(rows, 0, 0)["passage"]
    np.testing.assert_array_equal(text.weights, text.flat / np.float32(4096))
    np.testing.assert_array_equal(text.rows, rows)
    assert min(map(len, ids)) <= LENGTH < max(map(len, ids)), "both kinds are there"
    for row, piece in zip(rows, text.pieces(), strict=True):
        whole, read = ids[row], piece.tolist()
        windows = [whole[place : place + LENGTH - 2] for place in range(1, len(whole) - LENGTH + 2)]
        expected = [whole] if len(whole) <= LENGTH else [[whole[0], *window, whole[-1]] for window in windows]
        assert read in expected
        assert len(read) == source.lengths[row]


def test_every_place_is_as_likely_and_a_visit_can_be_repeated(tokens):
    _, ids = all_passages(tokens)
    row = max(range(len(ids)), key=lambda number: len(ids[number]))
    source = excerpts(tokens).open()
    visits: Counter[tuple[int, ...]] = Counter()
    for epoch in range(3000):
        (piece,) = source.read(np.array([row]), 7, epoch)["passage"].pieces()
        visits[tuple(piece.tolist())] += 1
    places = len(ids[row]) - LENGTH + 1
    expected = Counter(
        (ids[row][0], *ids[row][place : place + LENGTH - 2], ids[row][-1]) for place in range(1, places + 1)
    )
    assert visits.keys() == expected.keys()
    assert chisquare([visits[text] for text in expected], [3000 / places * n for n in expected.values()]).pvalue > 1e-4

    rows = np.arange(source.count)
    together = list(source.read(rows, 7, 5)["passage"].pieces())
    for number in rows[::7]:
        (alone,) = excerpts(tokens).open().read(np.array([number]), 7, 5)["passage"].pieces()
        np.testing.assert_array_equal(alone, together[number])


def recipe(name: str = "retromae", **changes: Any) -> Recipe:
    return override(RECIPES[name](), changes)


@pytest.mark.parametrize("name", ["retromae", "cotmae_qc"])
def test_a_training_reads_excerpts_and_is_another_one(name, tokens):
    none, some = (plan(recipe(name, excerpt=length)).pretrained for length in (None, 16))
    assert some is not None and none.fingerprint != some.fingerprint
    assert longest_lengths(some).passage == 16 < longest_lengths(none).passage


def test_the_worker_reads_them(tokens):
    read = Artifact(tokens, {"fingerprint": "f", "result": {}, "config": {"max_length": 48}})
    setup = pretrain_setup(plan(recipe(excerpt=16)).pretrained.config, {"tokens": read})
    assert setup.rows == ExcerptExamples(PassageExamples(tokens, "f"), 16) and setup.longest == 16


@pytest.mark.parametrize(
    ("name", "changes"), [("retromae", {"excerpt": 48}), ("cocondenser", {"excerpt": 16}), ("none", {"excerpt": 16})]
)
def test_where_there_is_nothing_to_choose_it_is_refused(name, changes):
    with pytest.raises(UserError, match=f"excerpt = {changes['excerpt']}"):
        recipe(name, **changes)
