"""SimCSE and LaPraDoR against the slow reference; dropout passes, turns and the cache."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch
from midmask.objectives.pretraining.laprador import LaPraDoR, TurnRows
from midmask.objectives.pretraining.simcse import SimCSE
from tests.support.objectives.checks import assert_equal, build, ids, reference_of, surprises
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import batch, random_texts, token_rows

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


def test_the_views_differ_by_dropout_alone_of_which_every_text_has_its_own() -> None:
    simcse = objective()
    same = torch.cat(simcse.represent(simcse.draw(batch([TEXTS[0]] * 4))).vectors)
    assert torch.pdist(same).min() > 1e-3
    drawn = simcse.draw(BATCH)
    one, other = simcse.represent(drawn).vectors
    assert not torch.allclose(one, other) and one.norm(dim=1).sub(1).abs().max() < 1e-9
    simcse.eval()
    one, other = simcse.represent(drawn).vectors
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_without_a_weight_there_is_no_masked_pass() -> None:
    simcse = objective()
    drawn = simcse.draw(BATCH)
    part = simcse(drawn).parts["mlm"]
    assert drawn.masked is None and part.count == simcse.counts(drawn)["mlm"] == 0 and part.total == 0
    simcse(drawn).total(simcse.counts(drawn)).backward()
    assert simcse.backbone.output_bias_V.grad is None


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


SIDES = ("query", "passage")

build_laprador = partial(build, LaPraDoR, dropout=0.1, backbone={"experts": "all"}, turn_steps=3, cache=8)
"""The two encoders differ."""


def turn(step: int) -> Batch:
    return Batch(step, {"passage": token_rows(random_texts([8, 14, 11], seed=step))})


def laprador_unit(reference: Reference, tokens: list[int]) -> Tensor:
    vector = reference.encode(tokens)[0]
    return vector / torch.sqrt((vector**2).sum())


def vectors_of(reference: Reference, drawn: TurnRows) -> dict[str, Vectors]:
    """Queries' and passages' unit vectors, each by its own encoder."""
    encoders = {"query": reference.read_as("backbone.experts.weights.", "backbone.model.bert."), "passage": reference}
    return {side: [laprador_unit(encoders[side], ids(drawn.text(side), row)) for row in range(3)] for side in SIDES}


def losses(candidates: Vectors, texts: Vectors, temperature: float) -> Vectors:
    """-log softmax of each text with its partner, which stands at its number among the candidates."""
    scores = [torch.stack([text @ other for other in candidates]) / temperature for text in texts]
    return [log_sum_exp(row) - row[place] for place, row in enumerate(scores)]


@pytest.mark.parametrize("dropout_weight", [1.0, 0.3])
def test_loss_and_every_gradient_equal_the_reference_in_each_step_of_two_turns(dropout_weight: float) -> None:
    """Three steps for the queries' encoder, then three for the passages'; of the nine vectors of a turn eight fit."""
    laprador = build_laprador(temperature=0.5, dropout_weight=dropout_weight).eval()
    kept: Vectors = []
    for step in range(6):
        laprador.zero_grad()
        drawn, reference = laprador.draw(turn(step)), reference_of(laprador)
        found = vectors_of(reference, drawn)
        trained, still = SIDES if step < 3 else SIDES[::-1]
        others = [vector.detach() for vector in found[still]]
        kept = kept if step % 3 else []
        terms = {
            "contrastive": losses([*others, *kept[-8:]], found[trained], 0.5),
            "dropout": losses(found[trained], found[trained], 0.5),
        }
        kept += others
        assert (drawn.trained, drawn.still) == (trained, still)
        assert_equal(laprador, drawn, reference, terms, (1.0, dropout_weight))
        moved = {name for name, p in laprador.named_parameters() if p.grad is not None and bool(p.grad.any())}
        assert all(name.startswith("backbone.experts.") == (trained == "query") for name in moved)


def test_a_cache_smaller_than_a_batch_keeps_its_last_vectors() -> None:
    laprador = build_laprador(cache=2).eval()
    drawn = laprador.draw(turn(0))
    still = laprador.represent(drawn).vectors[2]
    laprador(drawn)
    assert sorted(laprador.cache_KD[:, 0].tolist()) == pytest.approx(sorted(still[1:, 0].tolist()))
    none = build_laprador(cache=0).eval()
    parts = [none(none.draw(turn(step))).parts["contrastive"] for step in (0, 1)]
    assert all(bool(part.total.isfinite()) for part in parts)


def test_a_run_that_goes_on_has_the_cache() -> None:
    whole = build_laprador().eval()
    for step in range(2):
        whole(whole.draw(turn(step)))
    again = build_laprador().eval()
    again.load_state_dict(whole.state_dict())
    assert int(again.cached) == 6 and set(again.heads_state()) == {"cache_KD", "cached"}
    losses = [each(each.draw(turn(2))).parts["contrastive"].total for each in (whole, again)]
    without = build_laprador().eval()
    assert losses[0] == losses[1] > without(without.draw(turn(2))).parts["contrastive"].total


def test_health_changes_nothing() -> None:
    laprador = build_laprador().eval()
    laprador(laprador.draw(turn(0)))
    before = {name: value.clone() for name, value in laprador.state_dict().items()}
    with torch.no_grad():
        health = laprador.health(laprador.draw(turn(1)))
    assert set(health) == {"alignment", "uniformity", "in_batch_accuracy"}
    assert all(torch.equal(value, before[name]) for name, value in laprador.state_dict().items())
