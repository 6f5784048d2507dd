"""Words and term frequencies named from [CLS] against the slow references; bags against a Counter."""

import math
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.bag_of_words import bag_of_words, winning_vocabulary
from midmask.objectives.pretraining.bow import BOW
from midmask.objectives.pretraining.mlm_cls_tf import MLMTermFrequency
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import log_sum_exp
from tests.support.objectives.texts import MASK, UNK, random_texts, small_vocabulary, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "[UNK] is a target": {"bow_unknown": True},
    "other weights": {"bow_weight": 0.8, "bow_weight_end": 0.3},
    "tokens": {"encoder_mask": "token"},
}

objective = partial(build, BOW)


def texts() -> TokenRows:
    """Repeated tokens, [UNK], and a text that is nothing else."""
    return token_rows([*random_texts([8, 4]), [UNK, 9, UNK, 12, 9, 9], [UNK, UNK]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    model = objective(**VARIANTS[variant])
    config, text, progress = model.config, texts(), 0.25
    drawn = model.draw(Batch(10, {"passage": text}, progress=progress))
    reference = reference_of(model)
    values: dict[str, list[Tensor]] = {"mlm": [], "bag_of_words": []}
    for row in range(4):
        true = ids(text, row)
        states = reference.encode(ids(drawn.encoder, row))
        values["mlm"] += surprises(reference, states, drawn.encoder, row, true)
        words = {token for token in true[1:-1] if token != UNK or config.bow_unknown}
        if words:
            logits = reference.logits(states[0])
            values["bag_of_words"].append(
                torch.stack([(log_sum_exp(logits) - logits[v]) / len(words) for v in words]).sum()
            )
    assert len(values["bag_of_words"]) == (4 if config.bow_unknown else 3)
    cosine = math.cos(math.pi * progress)
    weight = config.bow_weight_end + (config.bow_weight - config.bow_weight_end) * 0.5 * (1 + cosine)
    assert_equal(model, drawn, reference, values, (1.0, weight))


def test_the_quota_counts_specials_and_unk_spends_it() -> None:
    text = token_rows([*random_texts([19, 31], size=40), [UNK] * 9])
    drawn = objective().draw(Batch(0, {"passage": text})).encoder
    assert drawn.selected_BL.sum(1).tolist() == [round(21 * 0.3), round(33 * 0.3), 0]
    assert UNK not in drawn.labels_R


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


def test_winners_are_0_where_all_texts_share_them_and_1_where_none_do() -> None:
    same = torch.arange(60.0).repeat(3, 1)
    apart = torch.stack([torch.arange(60.0).roll(20 * row) for row in range(3)])
    half = torch.stack([torch.arange(60.0), torch.arange(60.0).roll(5)])
    assert winning_vocabulary(same) == 0
    assert winning_vocabulary(apart) == 1
    assert winning_vocabulary(half) == 0.5
    assert winning_vocabulary(same[:1]) == 1


FREQUENCIES_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"tf_head": "linear"},
    "mean": {"tf_reduction": "mean", "tf_weight": 0.4},
    "cosine": {"tf_loss": "cosine"},
    "linear, cosine, whole words": {"tf_head": "linear", "tf_loss": "cosine", "encoder_mask": "word"},
}

frequencies = partial(build, MLMTermFrequency, encoder_mask_ratio=0.4)


def frequencies_texts() -> TokenRows:
    """Repeated tokens, and a text without any."""
    return token_rows([*random_texts([8, 0, 9]), [UNK, 9, UNK, 12, 9, 9]])


def distance(config: MLMTermFrequency.Config, y: Tensor, words: Counter[int]) -> Tensor:
    """Of y from the whole target, entry by entry."""
    length = math.sqrt(sum(count**2 for count in words.values()))
    target = torch.zeros(len(y), dtype=torch.float64)
    for token, count in words.items():
        target[token] = count / length
    if config.tf_loss == "cosine":
        return 1 - sum(y[v] * target[v] for v in range(len(y))) / torch.sqrt(sum(y[v] ** 2 for v in range(len(y))))
    squares = torch.stack([(y[v] - target[v]) ** 2 for v in range(len(y))])
    return squares.sum() if config.tf_reduction == "sum" else squares.sum() / len(y)


@pytest.mark.parametrize("variant", FREQUENCIES_VARIANTS)
def test_frequencies_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    model = frequencies(**FREQUENCIES_VARIANTS[variant])
    config, text = model.config, frequencies_texts()
    drawn = model.draw(Batch(0, {"passage": text}))
    reference = reference_of(model)
    values: dict[str, list[Tensor]] = {"mlm": [], "term_frequencies": []}
    for row in range(4):
        true = ids(text, row)
        states = reference.encode(ids(drawn.encoder, row))
        values["mlm"] += surprises(reference, states, drawn.encoder, row, true)
        if words := Counter(true[1:-1]):
            y = reference.logits(states[0]) if config.tf_head == "tied" else reference.linear("frequencies", states[0])
            values["term_frequencies"].append(distance(config, y, words))
    assert len(values["term_frequencies"]) == 3
    assert_equal(model, drawn, reference, values, (1.0, config.tf_weight))


def test_a_cosine_takes_no_reduction() -> None:
    with pytest.raises(UserError, match="tf_reduction = mean has no effect with tf_loss = cosine"):
        override(MLMTermFrequency.Config(), {"tf_loss": "cosine", "tf_reduction": "mean"})
