"""Masks by term weight (ROM's rule: highest temperature * uniform + weight) against exact and Monte-Carlo references.

Statistical tests run on fixed seeds; the false-alarm rate stated for each is what a fresh seed would have.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from midmask import masking
from midmask.batch import TokenRows
from midmask.randomness import masks
from midmask.randomness.masks import Purpose
from tests.support.masking.hashing import position_hash
from tests.support.objectives.texts import CLS, FIRST, PAD, SEP, UNK, random_texts, small_vocabulary, token_rows

WORD, PIECE = FIRST, 50
FALSE_ALARM = 1e-6


def weighted(texts: list[list[int]], weights: list[list[float]], **fields: object) -> TokenRows:
    """Rows with these weights at their tokens, and 9 (which no token may win by) at specials and padding."""
    text = token_rows(texts, **fields)  # type: ignore[arg-type]
    weights_BL = torch.full(text.ids_BL.shape, 9.0)
    for row, values in enumerate(weights):
        weights_BL[row, 1 : len(values) + 1] = torch.tensor(values)
    return replace(text, weights_BL=weights_BL)


def select(text: TokenRows, ratio: float, **fields: object) -> Tensor:
    return masking.select_highest(text, small_vocabulary(), ratio=ratio, purpose=Purpose.SELECT, **fields)  # type: ignore[arg-type]


def positions(mask_BL: Tensor) -> list[frozenset[int]]:
    return [frozenset(row.nonzero()[:, 0].tolist()) for row in mask_BL]


def published(key: int, tokens: int, weights: list[float], ratio: float, temperature: float) -> frozenset[int]:
    """The k highest of temperature * p_r + p_w, in NumPy's float64, the random numbers in Python's own integers."""
    bits = [position_hash(key % 2**64, int(Purpose.SELECT), 0, position) for position in range(1, tokens + 1)]
    scores = temperature * np.array([(x >> 8) / 2**24 for x in bits]) + np.array(weights, np.float32).astype(np.float64)
    wanted = max(1, round(ratio * tokens))
    return frozenset(sorted(range(1, tokens + 1), key=lambda position: (-scores[position - 1], position))[:wanted])


rows_of_weights = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=1, max_size=25), min_size=1, max_size=5
)


@settings(max_examples=150)
@given(
    weights=rows_of_weights,
    ratio=st.floats(0.01, 0.99),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0, 1000.0]),
    seed=st.integers(0, 2**31),
    padding=st.integers(0, 9),
)
def test_each_mask_is_the_top_share_by_score(
    weights: list[list[float]], ratio: float, temperature: float, seed: int, padding: int
) -> None:
    """Whatever the batch and the padding; specials weigh most here and are never taken."""
    keys = masks.row_keys(seed, 0, np.arange(len(weights)))
    texts = random_texts([len(row) for row in weights], seed=seed % 997)
    text = weighted(texts, weights, length=max(map(len, weights)) + 2 + padding, keys=keys)
    found = positions(select(text, ratio, temperature=temperature))
    for row, values in enumerate(weights):
        assert found[row] == published(int(keys[row]), len(values), values, ratio, temperature)


@settings(max_examples=40)
@given(weights=rows_of_weights, extra=st.integers(1, 30), seed=st.integers(0, 999))
def test_a_row_alone_is_masked_as_in_its_batch(weights: list[list[float]], extra: int, seed: int) -> None:
    texts = random_texts([len(row) for row in weights], seed=seed)
    together = weighted(texts, weights)
    found = positions(select(together, 0.3))
    for row, values in enumerate(weights):
        own = {"length": len(values) + 2 + extra, "keys": together.keys_B[row : row + 1]}
        assert positions(select(weighted([texts[row]], [values], **own), 0.3)) == [found[row]]


def test_the_count_is_exact_and_rounds_half_to_even() -> None:
    lengths = [0, 1, 2, 3, 10, 30, 50, 70, 90, 200]
    text = weighted(random_texts(lengths), [[0.5] * length for length in lengths])
    assert select(text, 0.15).sum(1).tolist() == [0, 1, 1, 1, 2, 4, 8, 10, 14, 30]
    assert select(text, 0.15, round_up=True).sum(1).tolist() == [0, 1, 1, 1, 2, 5, 8, 11, 14, 30]


def test_specials_are_never_taken_and_unknown_tokens_may_be() -> None:
    text = weighted([[UNK, WORD, UNK, WORD]] * 50, [[1.0, 0.0, 1.0, 0.0]] * 50)
    chosen = select(text, 0.5, temperature=0.5)
    assert set(text.ids_BL[chosen].tolist()) == {UNK}
    several = weighted(random_texts([40] * 20), [[0.0] * 40] * 20, length=50)
    taken = select(several, 0.99)
    assert not bool(taken[torch.isin(several.ids_BL, torch.tensor([CLS, SEP, PAD]))].any())


@pytest.mark.parametrize("weights", [None, [0.37] * 6])
def test_without_differences_it_is_a_uniform_subset(weights: list[float] | None) -> None:
    """Chi-square over all 20 subsets of 3 of 6 tokens. False alarm: 1e-6 per case."""
    draws = 12_000
    keys = masks.row_keys(11, 0, np.arange(draws))
    text = token_rows([[WORD] * 6] * draws, keys=keys)
    if weights is not None:
        text = weighted([[WORD] * 6] * draws, [weights] * draws, keys=keys)
    found = Counter(positions(select(text, 0.5)))
    subsets = [frozenset(subset) for subset in combinations(range(1, 7), 3)]
    assert set(found) == set(subsets)
    assert stats.chisquare([found[subset] for subset in subsets]).pvalue > FALSE_ALARM


def test_temperature_zero_takes_the_heaviest_whatever_the_key_and_the_earlier_of_equals() -> None:
    weights = [0.2, 0.9, 0.5, 0.9, 0.5, 0.5, 0.1, 0.0]
    for epoch in range(5):
        keys = masks.row_keys(0, epoch, np.arange(3))
        text = weighted([[WORD] * 8] * 3, [weights] * 3, keys=keys)
        assert set(positions(select(text, 0.5, temperature=0.0))) == {frozenset({2, 3, 4, 5})}


def test_a_constant_changes_nothing_a_factor_acts_as_a_temperature() -> None:
    """Exactly, since weights and factor are powers of two, and the uniform numbers multiples of 2**-24."""
    weights = (torch.randint(0, 1024, (60, 40), generator=torch.Generator().manual_seed(5)) / 1024).tolist()
    texts = random_texts([40] * 60)
    plain, lifted = weighted(texts, weights), weighted(texts, [[w + 0.5 for w in row] for row in weights])
    halved = weighted(texts, [[w / 2 for w in row] for row in weights])
    assert torch.equal(select(plain, 0.15), select(lifted, 0.15))
    assert torch.equal(select(halved, 0.15, temperature=0.5), select(plain, 0.15))
    assert torch.equal(select(halved, 0.15), select(plain, 0.15, temperature=2.0))
    assert not torch.equal(select(halved, 0.15), select(plain, 0.15))


@pytest.mark.parametrize(("difference", "temperature"), [(0.3, 1.0), (0.3, 2.0), (0.25, 0.5), (1.0, 1000.0)])
def test_of_two_tokens_the_heavier_wins_as_often_as_the_formula_says(difference: float, temperature: float) -> None:
    """P(T u + d > T v) = 1 - (1 - d / T)^2 / 2 for d <= T. Two-sided binomial test; false alarm 1e-6 per case."""
    draws = 6000
    keys = masks.row_keys(13, 0, np.arange(draws))
    text = weighted([[WORD] * 2] * draws, [[difference, 0.0]] * draws, keys=keys)
    wins = int(select(text, 0.5, temperature=temperature)[:, 1].sum())
    assert stats.binomtest(wins, draws, 1 - (1 - difference / temperature) ** 2 / 2).pvalue > FALSE_ALARM


def test_inclusion_probabilities_equal_those_of_the_published_rule() -> None:
    """Against NumPy's own random numbers: how often each of 10 tokens is among the top 3, 2 x 2 tables of both samples.
    Exact conditional tests, Bonferroni over 10 tokens; false alarm 1e-6. A weight of 0 beside many of 1 is never taken.
    """
    weights = np.array([0.0, 0.05, 0.1, 0.3, 0.5, 0.5, 0.7, 0.9, 1.0, 0.2], np.float32)
    draws = 8000
    generator = np.random.default_rng(3)
    order = np.argsort(-(generator.random((4 * draws, 10)) + weights.astype(np.float64)), axis=1)[:, :3]
    expected = np.bincount(order.ravel(), minlength=10)
    keys = masks.row_keys(14, 0, np.arange(draws))
    text = weighted([[WORD] * 10] * draws, [weights.tolist()] * draws, keys=keys)
    found = select(text, 0.3)[:, 1:11].sum(0).numpy()
    for mine, theirs in zip(found.tolist(), expected.tolist(), strict=True):
        table = [[mine, draws - mine], [theirs, 4 * draws - theirs]]
        assert stats.fisher_exact(table).pvalue > FALSE_ALARM / 10
    assert found[8] > 4 * found[0] > 0  # the lightest is taken now and then
    bimodal = weighted([[WORD] * 20] * 500, [[1.0] * 10 + [0.0] * 10] * 500)
    assert not bool(select(bimodal, 0.15)[:, 11:].any())
