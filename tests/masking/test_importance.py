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


@settings(max_examples=80)
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
