"""The middle-trained encoder averaged with the one that it began as, weight by weight.

What middle training on one corpus adds lies near the start in the space of weights, and so does what it takes away: a
mean of both keeps much of either (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"; LM-Cocktail, Xiao et
al. 2023, does so with retrievers).
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import load_backbone
from midmask.errors import UserError
from midmask.identity import Config


class MergeConfig(Config):
    """How much of the starting encoder is kept."""

    start_share: float = Field(gt=0.0, lt=1.0, description="weight of the starting encoder in the mean")


def merge(config: MergeConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: `start`, the trained encoder, and `initial`, what it began as; both with a folder in `model/`.

    Writes `model/`: the trained folder with the encoder's weights averaged. The MLM head is the trained one, since the
    start may have had none.

    Raises:
        UserError: if the encoder has experts of its own for queries, which the start lacks.
    """
    folder, initial = ((inputs[name].place / "model").local() for name in ("start", "initial"))
    trained, begun = load_backbone(folder, dropout=0.0), load_backbone(initial, dropout=0.0)
    if trained.experts is not None:
        raise UserError("merge: an encoder with experts for queries cannot be averaged with its start; set merge to 0")
    share, weights = config.start_share, dict(begun.encoder.named_parameters())
    with torch.no_grad():
        for name, end in trained.encoder.named_parameters():
            end.copy_(share * weights[name].double() + (1 - share) * end.double())
    with tempfile.TemporaryDirectory() as out_folder:
        trained.save(Path(out_folder), folder)
        (out / "model").upload(Path(out_folder))
    return {"start_share": share}
