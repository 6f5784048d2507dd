"""Bag-of-words prediction against the slow reference; its weight over a run, and what it masks."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives.pretraining.bow import BOW
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import log_sum_exp
from tests.support.objectives.texts import (
    UNK,
    random_texts,
    token_rows,
)

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


def test_the_weight_falls_from_1_to_a_tenth_along_half_a_cosine() -> None:
    found = [objective().bow_weight(progress) for progress in (0, 0.25, 0.5, 0.75, 1)]
    quarter = 0.45 * math.sqrt(0.5)
    assert found == pytest.approx([1.0, 0.55 + quarter, 0.55, 0.55 - quarter, 0.1])


def test_the_quota_counts_specials_and_unk_spends_it() -> None:
    text = token_rows([*random_texts([19, 31], size=40), [UNK] * 9])
    drawn = objective().draw(Batch(0, {"passage": text})).encoder
    assert drawn.selected_BL.sum(1).tolist() == [round(21 * 0.3), round(33 * 0.3), 0]
    assert UNK not in drawn.labels_R


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(UserError, match=r"bow_weight_end = -0\.1"):
        override(BOW.Config(), {"bow_weight_end": -0.1})
