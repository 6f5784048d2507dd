"""Every method takes a step with finite gradients on every family of backbones, or says beforehand that it cannot."""

from typing import Any

import numpy as np
import pytest
import torch

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.experts import ExpertSplit
from midmask.errors import UserError
from midmask.identity import override
from midmask.objectives import PRETRAINING, ObjectiveConfig, build_objective
from midmask.randomness.masks import row_keys
from tests.support.encoders.models import VARIANTS, random_model
from tests.support.objectives.texts import random_texts, small_vocabulary, token_rows

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
STREAMLESS = [name for name in VARIANTS if name.startswith(("deberta", "modernbert")) or "narrow" in name]
UNLIKE_BERT = [name for name in VARIANTS if name.startswith(("deberta", "modernbert"))]
REFUSED = {
    *((method, variant) for method in ("retromae, embedded queries", "dupmae") for variant in STREAMLESS),
    *((method, variant) for method in ("simlm", "tsdae", "diffcse") for variant in UNLIKE_BERT),
}
"""There the embedding module makes no queries of a sentence vector; there SimLM has no layers to copy, TSDAE none to
write with, and DiffCSE none that read a vector. Everything else runs."""


def config_of(method: str) -> ObjectiveConfig:
    name, fields = METHODS[method]
    config: ObjectiveConfig = override(PRETRAINING[name].Config(), fields)
    return config


def batch_for(config: ObjectiveConfig) -> Batch:
    """What the config reads: passages of 20 tokens and fewer, shorter contexts, weights where they are asked for. Two
    spans have four words in common."""
    reads = config.reads()

    def text(lengths: list[int], seed: int) -> TokenRows:
        rows = token_rows(random_texts(lengths, size=40, seed=seed), keys=row_keys(7, seed, np.arange(len(lengths))))
        weights = torch.rand(rows.ids_BL.shape, generator=torch.Generator().manual_seed(seed))
        return TokenRows(rows.ids_BL, rows.lengths_B, rows.keys_B, weights if reads.term_weights else None)

    texts = {"passage": text([20, 20, 20, 20] if reads.rows == "packed" else [20, 9, 14, 17], 0)}
    if reads.rows in ("spans", "pseudo_queries"):
        texts["context"] = text([5, 12, 8, 9], 1)
    if reads.rows == "spans":
        for rows in texts.values():
            rows.ids_BL[:, 1:5] = torch.arange(16, 20)
    return Batch(0, texts)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_finite_or_refused_beforehand(method: str, variant: str) -> None:
    config = config_of(method)
    backbone = Backbone(random_model(variant), dropout=0.1, split=ExpertSplit("ffn") if method == "cotmote" else None)
    vocabulary = small_vocabulary(40)
    if (method, variant) in REFUSED:
        with pytest.raises(UserError, match=r"^objective\."):
            config.check(backbone.shape)
        return
    torch.manual_seed(0)
    objective = build_objective(config, backbone, vocabulary).train()
    drawn = objective.draw(batch_for(config))
    loss = objective(drawn)
    loss.total(objective.counts(drawn)).backward()
    assert all(bool(part.total.isfinite()) for part in loss.parts.values())
    assert all(part.total > 0 for part in loss.parts.values() if part.count > 0)
    gradients = {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}
    assert all(bool(gradient.isfinite().all()) for gradient in gradients.values())
    last = f"backbone.model.{backbone.model.base_model_prefix}"
    moved = [name for name, gradient in gradients.items() if name.startswith(last) and bool(gradient.any())]
    assert len(moved) >= len([*backbone.encoder.parameters()]) - UNMOVED, "the loss does not reach the encoder"
