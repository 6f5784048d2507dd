"""LaPraDoR against the slow reference over the steps of two turns, its cache, and a run that goes on."""

from functools import partial

import pytest
import torch
from torch import Tensor

from midmask.batch import Batch
from midmask.errors import UserError
from midmask.objectives.pretraining.laprador import LaPraDoR, TurnRows
from tests.support.objectives.checks import assert_equal, build, ids, reference_of
from tests.support.objectives.reference import Reference, Vectors, log_sum_exp
from tests.support.objectives.texts import random_texts, token_rows

SIDES = ("query", "passage")


objective = partial(build, LaPraDoR, dropout=0.1, backbone={"experts": "all"}, turn_steps=3, cache=8)
"""The two encoders differ."""


def batch(step: int) -> Batch:
    return Batch(step, {"passage": token_rows(random_texts([8, 14, 11], seed=step))})


def unit(reference: Reference, tokens: list[int]) -> Tensor:
    vector = reference.encode(tokens)[0]
    return vector / torch.sqrt((vector**2).sum())


def vectors_of(reference: Reference, drawn: TurnRows) -> dict[str, Vectors]:
    """Queries' and passages' unit vectors, each by its own encoder."""
    encoders = {
        "query": reference.read_as("backbone.experts.weights.", "backbone.model.bert."),
        "passage": reference,
    }
    return {side: [unit(encoders[side], ids(drawn.text(side), row)) for row in range(3)] for side in SIDES}


def losses(candidates: Vectors, texts: Vectors, temperature: float) -> Vectors:
    """-log softmax of each text with its partner, which stands at its number among the candidates."""
    scores = [torch.stack([text @ other for other in candidates]) / temperature for text in texts]
    return [log_sum_exp(row) - row[place] for place, row in enumerate(scores)]


@pytest.mark.parametrize("dropout_weight", [1.0, 0.3])
def test_loss_and_every_gradient_equal_the_reference_in_each_step_of_two_turns(dropout_weight: float) -> None:
    """Three steps for the queries' encoder, then three for the passages'; of the nine vectors of a turn eight fit."""
    laprador = objective(temperature=0.5, dropout_weight=dropout_weight).eval()
    kept: Vectors = []
    for step in range(6):
        laprador.zero_grad()
        drawn, reference = laprador.draw(batch(step)), reference_of(laprador)
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
    laprador = objective(cache=2).eval()
    drawn = laprador.draw(batch(0))
    still = laprador.represent(drawn).vectors[2]
    laprador(drawn)
    assert sorted(laprador.cache_KD[:, 0].tolist()) == pytest.approx(sorted(still[1:, 0].tolist()))
    none = objective(cache=0).eval()
    parts = [none(none.draw(batch(step))).parts["contrastive"] for step in (0, 1)]
    assert all(bool(part.total.isfinite()) for part in parts)


def test_an_old_turns_vectors_are_no_candidates() -> None:
    """A step at the beginning of a turn is the same with a full cache and with an empty one."""
    used, fresh = objective().eval(), objective().eval()
    for step in range(3):
        used(used.draw(batch(step)))
    losses = [each(each.draw(batch(3))).parts["contrastive"].total for each in (used, fresh)]
    assert losses[0] == losses[1]


def test_a_run_that_goes_on_has_the_cache() -> None:
    whole = objective().eval()
    for step in range(2):
        whole(whole.draw(batch(step)))
    again = objective().eval()
    again.load_state_dict(whole.state_dict())
    assert int(again.cached) == 6 and set(again.heads_state()) == {"cache_KD", "cached"}
    losses = [each(each.draw(batch(2))).parts["contrastive"].total for each in (whole, again)]
    without = objective().eval()
    assert losses[0] == losses[1] > without(without.draw(batch(2))).parts["contrastive"].total


def test_health_changes_nothing() -> None:
    laprador = objective().eval()
    laprador(laprador.draw(batch(0)))
    before = {name: value.clone() for name, value in laprador.state_dict().items()}
    with torch.no_grad():
        health = laprador.health(laprador.draw(batch(1)))
    assert set(health) == {"alignment", "uniformity", "in_batch_accuracy"}
    assert all(torch.equal(value, before[name]) for name, value in laprador.state_dict().items())


def test_without_dropout_it_is_refused() -> None:
    with pytest.raises(UserError, match=r"laprador: backbone\.dropout = 0, .* set backbone\.dropout=0\.1"):
        objective(dropout=0.0)
