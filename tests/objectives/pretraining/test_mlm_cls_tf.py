"""Term frequencies from [CLS] against the slow reference, which makes the whole target; all heads and distances."""

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
from midmask.objectives.pretraining.mlm_cls_tf import MLMTermFrequency
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.texts import (
    UNK,
    random_texts,
    token_rows,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"tf_head": "linear"},
    "mean": {"tf_reduction": "mean", "tf_weight": 0.4},
    "cosine": {"tf_loss": "cosine"},
    "linear, cosine, whole words": {"tf_head": "linear", "tf_loss": "cosine", "encoder_mask": "word"},
}


objective = partial(build, MLMTermFrequency, encoder_mask_ratio=0.4)


def texts() -> TokenRows:
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    model = objective(**VARIANTS[variant])
    config, text = model.config, texts()
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


def test_counts_are_those_of_the_true_text() -> None:
    text = token_rows([[9, 9, 30, 12] * 5])
    drawn = objective(encoder_mask_ratio=0.9).draw(Batch(0, {"passage": text}))
    there = drawn.bag.present_BL
    counts = zip(drawn.bag.ids_BL[there].tolist(), drawn.bag.counts_BL[there].tolist(), strict=True)
    assert dict(counts) == {9: 10, 12: 5, 30: 5}
    assert drawn.encoder.count > 10


def test_a_cosine_takes_no_reduction() -> None:
    with pytest.raises(UserError, match="tf_reduction = mean has no effect with tf_loss = cosine"):
        override(MLMTermFrequency.Config(), {"tf_loss": "cosine", "tf_reduction": "mean"})
