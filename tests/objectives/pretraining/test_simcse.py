"""SimCSE against the slow reference, its two dropout passes, and its refusal of a backbone without dropout."""

from functools import partial
from typing import Any

import pytest
import torch

from midmask.errors import UserError
from midmask.objectives.pretraining.simcse import SimCSE
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import Reference, log_sum_exp
from tests.support.objectives.texts import batch, random_texts

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "without projection": {"projection": False, "temperature": 0.5},
    "with MLM": {"mlm_weight": 0.1, "encoder_mask_ratio": 0.4},
}
TEXTS = random_texts([8, 4, 6])
BATCH = batch(TEXTS)
objective = partial(build, SimCSE, dropout=0.1)


def unit(reference: Reference, simcse: SimCSE, tokens: list[int]) -> torch.Tensor:
    vector = reference.encode(tokens)[0]
    if simcse.config.projection:
        vector = torch.tanh(reference.linear("projection", vector))
    return vector / torch.sqrt((vector**2).sum())


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient_equal_the_reference(variant: str) -> None:
    """With dropout switched off, which the reference lacks, both passes are equal and the loss is not zero: a text is
    told from the others."""
    simcse = objective(**VARIANTS[variant]).eval()
    config, drawn, reference = simcse.config, simcse.draw(BATCH), reference_of(simcse)
    views = [[unit(reference, simcse, [2, *text, 3]) for text in TEXTS] for _ in range(2)]
    scores = [[(one * other).sum() / config.temperature for other in views[1]] for one in views[0]]
    terms = {"contrastive": [log_sum_exp(torch.stack(row)) - row[place] for place, row in enumerate(scores)], "mlm": []}
    for row, text in enumerate(TEXTS if config.mlm_weight else ()):
        states = reference.encode(ids(drawn.masked, row))
        terms["mlm"] += surprises(reference, states, drawn.masked, row, [2, *text, 3])
    assert bool(config.mlm_weight) == (len(terms["mlm"]) > 2)
    assert_equal(simcse, drawn, reference, terms, (1.0, config.mlm_weight))


def test_first_passes_look_for_second_passes() -> None:
    """A softmax over the second passes for each first pass, not the other way round."""
    one, other = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    part = objective().couple((one, other), ())["contrastive"]
    expected = sum(log_sum_exp(other @ row / 0.05) - other[place] @ row / 0.05 for place, row in enumerate(one))
    torch.testing.assert_close(part.total, expected, rtol=1e-9, atol=1e-9)


def test_the_views_differ_by_dropout_alone() -> None:
    simcse = objective()
    drawn = simcse.draw(BATCH)
    one, other = simcse.represent(drawn).vectors
    assert not torch.allclose(one, other) and one.norm(dim=1).sub(1).abs().max() < 1e-9
    simcse.eval()
    one, other = simcse.represent(drawn).vectors
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_every_text_of_the_batch_has_dropout_of_its_own() -> None:
    """The same text four times gives eight different vectors."""
    simcse = objective()
    vectors = torch.cat(simcse.represent(simcse.draw(batch([TEXTS[0]] * 4))).vectors)
    assert torch.pdist(vectors).min() > 1e-3


def test_without_dropout_it_is_refused() -> None:
    with pytest.raises(UserError, match=r"simcse: backbone\.dropout = 0, .* set backbone\.dropout=0\.1"):
        objective(dropout=0.0)


def test_without_a_weight_there_is_no_masked_pass() -> None:
    simcse = objective()
    drawn = simcse.draw(BATCH)
    part = simcse(drawn).parts["mlm"]
    assert drawn.masked is None and part.count == simcse.counts(drawn)["mlm"] == 0 and part.total == 0
    simcse(drawn).total(simcse.counts(drawn)).backward()
    assert simcse.backbone.output_bias_V.grad is None
    assert not SimCSE.Config(encoder_mask="weighted").reads().term_weights
    assert SimCSE.Config(encoder_mask="weighted", mlm_weight=0.1).reads().term_weights


def test_health_is_the_uniformity_of_the_texts() -> None:
    """Of three unit vectors, log of the mean over the three pairs of exp(-2 |x - y|²)."""
    simcse = objective().eval()
    drawn = simcse.draw(BATCH)
    with torch.no_grad():
        health = simcse.health(drawn)
        x, y, z = simcse.represent(drawn).vectors[0]
    expected = torch.stack([((a - b) ** 2).sum() for a, b in ((x, y), (x, z), (y, z))]).mul(-2).exp().mean().log()
    torch.testing.assert_close(health["uniformity"].double(), expected, rtol=1e-5, atol=1e-5)
    alone = simcse.draw(batch(TEXTS[:1]))
    assert simcse.health(alone)["uniformity"] == 0
