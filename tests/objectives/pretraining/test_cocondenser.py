"""coCondenser against the slow reference: which spans are candidates, whose partners they are, and the MLM terms."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from midmask.batch import Batch, TokenRows
from midmask.errors import UserError
from midmask.objectives import build_objective
from midmask.objectives.pretraining.cocondenser import CoCondenser
from midmask.objectives.pretraining.condenser import Condenser
from tests.support.objectives.checks import assert_equal, build, ids
from tests.support.objectives.head import HeadReference
from tests.support.objectives.reference import Vectors, log_sum_exp
from tests.support.objectives.texts import (
    batch,
    random_texts,
    small_vocabulary,
    token_rows,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 20, published weights with a cache": {"temperature": 20.0, "head_weight": 2.0, "late_weight": 2.0},
    "other weights, one layer": {"contrastive_weight": 0.3, "late_weight": 0.5, "head_layers": 1, "temperature": 7.0},
}


objective = partial(build, CoCondenser)
BATCH = batch(random_texts([8, 4, 6], seed=1), random_texts([5, 9, 7], seed=2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    """The softmax of a span runs over all spans but itself; rows i and i + 3 of what is drawn are partners."""
    cocondenser = objective(**VARIANTS[variant])
    config, drawn = cocondenser.config, cocondenser.draw(BATCH)
    reference = HeadReference(cocondenser, heads=2, layers=2, pad_id=0)
    contrastive: Vectors = []
    vectors = [reference.encode(ids(drawn, row))[0] for row in range(6)]
    for row, vector in enumerate(vectors):
        scores = {n: vector @ other / config.temperature for n, other in enumerate(vectors) if n != row}
        partner = scores[row + 3 if row < 3 else row - 3]
        contrastive.append(log_sum_exp(torch.stack(list(scores.values()))) - partner)
    terms = {"contrastive": contrastive, **reference.losses(drawn, 1, config.head_layers)}
    assert_equal(
        cocondenser, drawn, reference, terms, (config.contrastive_weight, config.head_weight, config.late_weight)
    )


def test_both_spans_are_masked_and_apart_from_each_other() -> None:
    """Both spans of a row carry the same key, and the same text is masked otherwise in each. Eight rows of 100 words,
    15 hidden in each span: were the masks independent, 2.25 would be shared in a row; that all eight rows were equal by
    chance has a probability below 1e-100."""
    text = token_rows(random_texts([100] * 8))
    drawn = objective().draw(Batch(0, {"passage": text, "context": text}))
    assert torch.equal(drawn.lengths_B, text.lengths_B.repeat(2))
    hidden_BL = drawn.selected_BL
    assert hidden_BL.sum(1).tolist() == [15] * 16
    shared = (hidden_BL[:8] & hidden_BL[8:]).sum()
    assert 0 < shared < 8 * 7
    untouched = ~hidden_BL
    assert torch.equal(drawn.ids_BL[untouched], text.ids_BL.repeat(2, 1)[untouched])


def test_mlm_terms_are_those_of_condenser_on_all_spans() -> None:
    cocondenser = objective()
    condenser = build_objective(Condenser.Config(), cocondenser.backbone, small_vocabulary(), seed=6).double()
    assert cocondenser.take_over(condenser.heads_state()) == list(condenser.heads_state())
    drawn = cocondenser.draw(BATCH)
    both, alone = cocondenser(drawn).parts, condenser(drawn).parts
    assert all(torch.equal(both[name].total, alone[name].total) for name in ("head_mlm", "late_mlm"))


def test_one_document_has_no_other_candidate_than_its_partner() -> None:
    part = objective()(objective().draw(batch(random_texts([5]), random_texts([7])))).parts["contrastive"]
    assert part.count == 2 and math.isclose(part.total.item(), 0.0, abs_tol=1e-12)


def test_it_reads_spans_and_refuses_what_condenser_refuses() -> None:
    assert CoCondenser.Config().reads().rows == "spans"
    assert CoCondenser.Config(encoder_mask="weighted").reads().term_weights
    with pytest.raises(UserError, match="cocondenser: skip_from = 2"):
        objective(skip_from=2)


def test_health_tells_how_well_partners_agree() -> None:
    """Equal spans, nothing masked: a pair's vectors are equal, and each row finds its own."""
    cocondenser = objective(encoder_mask="token", encoder_mask_ratio=1e-6).eval()
    text: TokenRows = token_rows(random_texts([30, 20, 25, 10]))
    drawn = cocondenser.draw(Batch(0, {"passage": text, "context": text}))
    with torch.no_grad():
        health = cocondenser.health(drawn)
    assert health["alignment"] < 1e-9 and -4 < health["uniformity"] < 0 and health["in_batch_accuracy"] == 1
    order = [0, 1, 2, 3, 5, 4, 6, 7]
    shuffled = replace(drawn, ids_BL=drawn.ids_BL[order], lengths_B=drawn.lengths_B[order])
    with torch.no_grad():
        health = cocondenser.health(shuffled)
    assert health["alignment"] > 0 and health["in_batch_accuracy"] == 0.5
