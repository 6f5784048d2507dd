"""Bags of words against Python's Counter, and the losses made of them against their definitions."""

from collections import Counter

import pytest
import torch

from midmask.objectives.pretraining.bag_of_words import bag_cross_entropy, bag_of_words, winning_vocabulary
from tests.support.objectives.texts import MASK, UNK, random_texts, small_vocabulary, token_rows

TEXTS = [*random_texts([40, 0, 1, 17], size=30), [UNK, 9, UNK, 12, 9, 9], [UNK], [59, 59, 5, 59], [MASK, 7, MASK]]


@pytest.mark.parametrize("unknown", [True, False])
def test_a_bag_counts_each_distinct_token_once(unknown: bool) -> None:
    bag = bag_of_words(token_rows(TEXTS), small_vocabulary(), unknown=unknown)
    for row, text in enumerate(TEXTS):
        expected = Counter(token for token in text if token != MASK and (unknown or token != UNK))
        there = bag.present_BL[row]
        found = list(zip(bag.ids_BL[row][there].tolist(), bag.counts_BL[row][there].tolist(), strict=True))
        assert len(found) == len(expected) and dict(found) == expected
    assert bag.count == len(TEXTS) - (1 if unknown else 2)


def test_target_weights_sum_to_the_share_of_distinct_tokens_to_one_or_to_their_number() -> None:
    bag = bag_of_words(token_rows(TEXTS), small_vocabulary())
    sizes = [[token for token in text if token != MASK] for text in TEXTS]
    for kind, expected in (
        ("share", [len(set(text)) / max(len(text), 1) for text in sizes]),
        ("set", [float(bool(text)) for text in sizes]),
        ("sum", [float(len(set(text))) for text in sizes]),
    ):
        weights = bag.weights(kind, torch.float64)
        torch.testing.assert_close(weights.sum(1), torch.tensor(expected, dtype=torch.float64))
        assert torch.equal(weights > 0, bag.present_BL)
        assert all(len({w for w in row if w > 0}) <= 1 for row in weights.tolist())


def test_the_cross_entropy_is_that_of_the_dense_targets() -> None:
    bag = bag_of_words(token_rows(TEXTS), small_vocabulary())
    logits = torch.randn(len(TEXTS), 60, dtype=torch.float64)
    weights = bag.weights("share", torch.float64)
    expected = torch.zeros((), dtype=torch.float64)
    for row, text in enumerate(TEXTS):
        tokens = [token for token in text if token != MASK]
        for token in set(tokens):
            expected -= logits[row].softmax(0)[token].log() / len(tokens)
    torch.testing.assert_close(bag_cross_entropy(logits, bag.ids_BL, weights), expected)


def test_winners_are_0_where_all_texts_share_them_and_1_where_none_do() -> None:
    same = torch.arange(60.0).repeat(3, 1)
    apart = torch.stack([torch.arange(60.0).roll(20 * row) for row in range(3)])
    half = torch.stack([torch.arange(60.0), torch.arange(60.0).roll(5)])
    assert winning_vocabulary(same) == 0
    assert winning_vocabulary(apart) == 1
    assert winning_vocabulary(half) == 0.5
    assert winning_vocabulary(same[:1]) == 1
