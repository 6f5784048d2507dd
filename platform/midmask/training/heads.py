"""Saves the weights that only an objective uses beside the model, so that another method can start from them.

The heads are in the model's folder as `heads.safetensors`: no other library looks for it, and a copied folder has it.
"""

import logging
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from midmask.errors import UserError
from midmask.objectives import Objective
from midmask.training.setup import TrainingSetup

log = logging.getLogger(__name__)

FILE = "heads.safetensors"


def save_heads(objective: Objective, name: str, folder: Path) -> None:
    """Writes the heads, if there are any. The file's metadata has `name`, the objective's."""
    plain = torch.contiguous_format
    heads = {key: tensor.detach().cpu().clone(memory_format=plain) for key, tensor in objective.heads_state().items()}
    if heads:
        safetensors.torch.save_file(heads, folder / FILE, {"objective": name})


def take_heads(objective: Objective, setup: TrainingSetup) -> dict[str, int]:
    """Takes over the heads in the folder that a run starts from: those whose name and shape are the objective's.

    Returns:
        heads_taken, heads_fresh: how many tensors come from the folder, and how many have fresh weights.

    Raises:
        UserError: if the file cannot be read.
    """
    folder, taken = setup.origin, list[str]()
    if folder is not None and (folder / FILE).is_file():
        try:
            taken = objective.take_over(safetensors.torch.load_file(folder / FILE))
        except SafetensorError as error:
            raise UserError(f"{folder / FILE}: no heads can be read there ({error})") from None
    return {"heads_taken": len(taken), "heads_fresh": len(objective.heads_state()) - len(taken)}
