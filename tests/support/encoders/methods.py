"""A step of every pre-training method on every family of backbones."""

from typing import Any

import pytest
import torch

from midmask.core.config import override
from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import ExpertSplit
from midmask.errors import UserError
from midmask.objectives import PRETRAINING, build_objective
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.objectives.texts import batch_for, small_vocabulary

SMALL = {"condenser": {"skip_from": 1}, "cocondenser": {"skip_from": 1}}
"""What a method needs on two layers."""
UNMOVED = 6
"""Weights of an encoder that may get no gradient: key biases (zero but for rounding), types, relative positions."""
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, SMALL.get(name, {})) for name in PRETRAINING},
    "retromae, embedded queries": ("retromae", {"query_stream": "embedding"}),
    "retromae, basic": ("retromae", {"decoding": "basic"}),
    "dupmae, plain queries": ("dupmae", {"query_stream": "paper"}),
    "dupmae, ordinary tokens": ("dupmae", {"decode": "ot"}),
}
UNLIKE_BERT = [name for name in VARIANTS if name.startswith(("deberta", "modernbert"))]
STREAMLESS = [name for name in VARIANTS if name in UNLIKE_BERT or "narrow" in name]
REFUSED = [
    *((method, variant) for method in ("retromae, embedded queries", "dupmae") for variant in STREAMLESS),
    *((method, variant) for method in ("simlm", "tsdae", "diffcse") for variant in UNLIKE_BERT),
]
"""There the embedding module makes no queries of a sentence vector; there SimLM has no layers to copy, TSDAE none to
write with, and DiffCSE none that read a vector. Everything else runs."""


def assert_steps(method: str, variant: str) -> None:
    """A step has finite gradients that reach the encoder; or it is refused beforehand."""
    name, fields = METHODS[method]
    config = override(PRETRAINING[name].Config(), fields)
    backbone = Backbone(random_model(variant), dropout=0.1, split=ExpertSplit("ffn") if method == "cotmote" else None)
    if (method, variant) in REFUSED:
        with pytest.raises(UserError, match=r"^objective\."):
            config.check(backbone.shape)
        return
    torch.manual_seed(0)
    objective = build_objective(config, backbone, small_vocabulary(40)).train()
    drawn = objective.draw(batch_for(config, [20, 9, 14, 17], [5, 12, 8, 9], size=40))
    loss = objective(drawn)
    loss.total(objective.counts(drawn)).backward()
    assert all(bool(part.total.isfinite()) for part in loss.parts.values())
    assert all(part.total > 0 for part in loss.parts.values() if part.count > 0)
    gradients = {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}
    assert all(bool(gradient.isfinite().all()) for gradient in gradients.values())
    last = f"backbone.model.{backbone.model.base_model_prefix}"
    moved = [name for name, gradient in gradients.items() if name.startswith(last) and bool(gradient.any())]
    assert len(moved) >= len([*backbone.encoder.parameters()]) - UNMOVED, "the loss does not reach the encoder"
