"""SimCSE against the slow reference, its two dropout passes, and its refusal of a backbone without dropout."""

from typing import Any

import pytest
import torch

from midmask.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import build_objective
from midmask.objectives.pretraining.simcse import SimCSE
from tests.support.objectives.reference import Reference, assert_same_gradients, log_sum_exp
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows

VARIANTS: dict[str, dict[str, Any]] = {
    "published": {},
    "without projection": {"projection": False, "temperature": 0.5},
    "with MLM": {"mlm_weight": 0.1, "encoder_mask_ratio": 0.4},
}
TEXTS = random_texts([8, 4, 6])
BATCH = Batch(0, {"passage": token_rows(TEXTS)})


def objective(*, dropout: float = 0.1, **fields: object) -> SimCSE:
    vocabulary = small_vocabulary()
    backbone = build_backbone(BackboneConfig(name="tiny", dropout=dropout), vocabulary, seed=3)
    built = build_objective(override(SimCSE.Config(), fields), backbone, vocabulary, seed=5).double()
    assert isinstance(built, SimCSE)
    return built


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
    config = simcse.config
    drawn = simcse.draw(BATCH)
    loss = simcse(drawn)
    total = loss.total(simcse.counts(drawn))
    total.backward()

    reference = Reference(simcse, heads=2, layers=2, pad_id=0)
    views = [[unit(reference, simcse, [2, *text, 3]) for text in TEXTS] for _ in range(2)]
    scores = [[(one * other).sum() / config.temperature for other in views[1]] for one in views[0]]
    contrastive = [log_sum_exp(torch.stack(row)) - row[place] for place, row in enumerate(scores)]
    expected = sum(contrastive) / 3
    assert loss.parts["contrastive"].count == simcse.counts(drawn)["contrastive"] == 3
    if config.mlm_weight:
        rows, width = drawn.masked, BATCH.texts["passage"].ids_BL.shape[1]
        assert rows is not None
        surprises = []
        for place, label in zip(rows.rows_R.tolist(), rows.labels_R.tolist(), strict=True):
            row, column = divmod(place, width)
            tokens = rows.ids_BL[row, : int(rows.lengths_B[row])].tolist()
            surprises.append(reference.surprise(reference.encode(tokens)[column], label))
        assert loss.parts["mlm"].count == simcse.counts(drawn)["mlm"] == len(surprises) > 2
        expected = expected + config.mlm_weight * sum(surprises) / len(surprises)
    expected.backward()
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    assert_same_gradients(simcse, reference)


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
    same = Batch(0, {"passage": token_rows([TEXTS[0]] * 4)})
    vectors = torch.cat(simcse.represent(simcse.draw(same)).vectors)
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


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_shortest_texts_give_finite_gradients(length: int) -> None:
    simcse = objective(mlm_weight=0.1)
    drawn = simcse.draw(Batch(0, {"passage": token_rows(random_texts([length, 6]))}))
    simcse(drawn).total(simcse.counts(drawn)).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in simcse.parameters())


def test_the_projection_is_what_is_thrown_away() -> None:
    assert set(objective().heads_state()) == {"projection.weight", "projection.bias"}
    assert not objective(projection=False).heads_state()


def test_health_is_the_uniformity_of_the_texts() -> None:
    """Of three unit vectors, log of the mean over the three pairs of exp(-2 |x - y|²)."""
    simcse = objective().eval()
    drawn = simcse.draw(BATCH)
    with torch.no_grad():
        health = simcse.health(drawn)
        x, y, z = simcse.represent(drawn).vectors[0]
    expected = torch.stack([((a - b) ** 2).sum() for a, b in ((x, y), (x, z), (y, z))]).mul(-2).exp().mean().log()
    torch.testing.assert_close(health["uniformity"].double(), expected, rtol=1e-5, atol=1e-5)
    alone = simcse.draw(Batch(0, {"passage": token_rows(TEXTS[:1])}))
    assert simcse.health(alone)["uniformity"] == 0
