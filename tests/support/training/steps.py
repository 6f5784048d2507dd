"""A training step of any objective, for what measures speed; needs torch and the objectives alone."""

from collections.abc import Callable

import torch

from midmask.core.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING, Objective, build_objective
from midmask.text.vocabulary import Vocabulary


def objective_named(name: str, backbone: str, words: Vocabulary) -> Objective:
    """An objective with its default settings on a backbone with fresh weights, training."""
    encoder = build_backbone(BackboneConfig.model_validate({"name": backbone}), words, seed=0)
    return build_objective(PRETRAINING[name].Config(), encoder, words).train()


def training_step(objective: Objective, batch: Batch, *, bf16: bool = False) -> Callable[[], None]:
    """Masks, forward and backward pass, and AdamW, on the device the objective and the batch are on."""
    kind = batch.texts["passage"].ids_BL.device.type
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4, fused=kind == "cuda")

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(kind, torch.bfloat16, enabled=bf16):
            loss = objective(objective.draw(batch))
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()
        optimiser.step()

    return step
