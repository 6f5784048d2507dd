"""The middle-trained encoder averaged with the one that it began as, weight by weight.

What middle training on one corpus adds lies near the start in the space of weights, and so does what it takes away: a
mean of both keeps much of either (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"; LM-Cocktail, Xiao et
al. 2023, does so with retrievers).
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from pydantic import Field
from torch import Tensor

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import load_backbone
from midmask.errors import UserError
from midmask.identity import Config

WEIGHTS = "model.safetensors"


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
    trained, initial = ((inputs[name].place / "model").local() for name in ("start", "initial"))
    if (trained / "experts.safetensors").exists():
        raise UserError("merge: an encoder with experts for queries cannot be averaged with its start; set merge to 0")
    start, end = (safetensors.torch.load_file(folder / WEIGHTS) for folder in (initial, trained))
    prefix = f"{load_backbone(trained, dropout=0.0).model.base_model_prefix}."
    merged = {
        name: _mean(start[name], tensor, config.start_share) if name.startswith(prefix) else tensor
        for name, tensor in end.items()
    }
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(trained, Path(name), dirs_exist_ok=True)
        safetensors.torch.save_file(merged, Path(name) / WEIGHTS, metadata={"format": "pt"})
        (out / "model").upload(Path(name))
    return {"start_share": config.start_share}


def _mean(start: Tensor, end: Tensor, share: float) -> Tensor:
    return (share * start.double() + (1 - share) * end.double()).to(end.dtype).contiguous()
