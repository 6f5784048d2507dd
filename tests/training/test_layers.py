"""Layers that are computed again, and compiled ones: the same gradients, less memory, the same weights' names."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from midmask.encoders.backbone import BackboneConfig, build_backbone, load_backbone
from midmask.errors import UserError
from midmask.estimate.counting import Row
from midmask.kept import kept_tensors
from midmask.layers import recompute_layers
from midmask.objectives import FINETUNING, PRETRAINING, Objective, build_objective
from midmask.objectives.sample import finetuning_batch, pretraining_batch, sample_vocabulary
from tests.support.encoders.models import random_model
from tests.support.estimate.counted import counted

WORDS = sample_vocabulary(300)
ROWS, LENGTH = 4, 24


def built(method: str, **encoder: Any) -> tuple[Objective, Any]:
    """An objective on a small encoder with dropout, and a batch for it."""
    config = {**PRETRAINING, **FINETUNING}[method].Config()
    backbone = build_backbone(BackboneConfig(**{"name": "mini", "dropout": 0.1, **encoder}), WORDS, seed=0)
    objective = build_objective(config, backbone, WORDS, seed=0).train()
    if method in FINETUNING:
        return objective, finetuning_batch(WORDS, queries=ROWS, group=2, query=8, passage=LENGTH)
    return objective, pretraining_batch(config, WORDS, rows=ROWS, length=LENGTH)


def gradients(objective: Objective, batch: Any) -> tuple[dict[str, torch.Tensor], int]:
    """After one step, and the bytes that the forward pass kept for it."""
    torch.manual_seed(1)
    drawn = objective.draw(batch)
    state = torch.get_rng_state()
    objective(drawn).total(objective.counts(drawn)).backward()
    torch.set_rng_state(state)
    with kept_tensors(objective) as kept:
        objective(drawn).total(objective.counts(drawn))
    return {name: weight.grad for name, weight in objective.named_parameters() if weight.grad is not None}, kept.bytes


def kept_share(make: Callable[[], tuple[Objective, Any]]) -> float:
    """Of the bytes that are kept, those that are where layers are computed again, to the same gradients."""
    (kept_all, much), (again_all, little) = (gradients(*made) for made in (make(), again(*make())))
    assert kept_all.keys() == again_all.keys()
    for key, gradient in kept_all.items():
        assert torch.equal(gradient, again_all[key]), key
    return little / much


def again(objective: Objective, batch: Any) -> tuple[Objective, Any]:
    recompute_layers(objective.backbone)
    return objective, batch


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["retromae", "simcse", "contrastive"])
def test_layers_computed_again_give_the_same_gradients_and_keep_less(name, precision):
    with warnings.catch_warnings(), torch.autocast("cpu", precision, enabled=precision != torch.float32):
        warnings.simplefilter("error")
        assert kept_share(lambda: built(name)) < 0.75


@pytest.mark.parametrize("family", ["distilbert", "modernbert", "deberta", "deberta-v2"])
def test_layers_of_other_families_are_computed_again(family, tmp_path):
    """Their masks are not BERT's, DistilBERT's layers have another name."""
    random_model(family).save_pretrained(tmp_path)
    words, config = sample_vocabulary(40), PRETRAINING["mlm"].Config()

    def make() -> tuple[Objective, Any]:
        objective = build_objective(config, load_backbone(tmp_path, dropout=0.1), words, seed=0).train()
        return objective, pretraining_batch(config, words, rows=ROWS, length=16)

    assert kept_share(make) < 1


def test_an_estimate_knows_what_is_kept_and_what_is_computed_again():
    config, on = PRETRAINING["mlm"].Config(), BackboneConfig(name="mini", dropout=0.1)
    plain, again = (counted(config, Row(64), on=on, kind="cuda", recompute=recompute) for recompute in (False, True))
    assert again.kept < 0.7 * plain.kept and again.parameters == plain.parameters
    assert 1.1 * plain.row < again.row < 4 / 3 * plain.row, "one layer is kept, the others are done once more"


def test_layers_that_queries_have_for_themselves_are_not_computed_again():
    objective, _ = built("cotmote", experts="ffn")
    with pytest.raises(UserError, match=r"train\.recompute = true: queries have weights of their own"):
        recompute_layers(objective.backbone)
