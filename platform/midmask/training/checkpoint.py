"""What a training saves beside the model: checkpoints and the objective's own weights.

A checkpoint is a folder of safetensors whose `position.json` is written last, so that it is whole or not there.

    checkpoints/step-00000100/objective.safetensors   model and decoder heads
                              optimiser.safetensors   AdamW's moments and step counts, by parameter name
                              position.json           steps done, epoch, seed, plan, threads, versions, and the
                                                      SHA-256 of the two files

The learning rate and every random draw are functions of (seed, step), so the position is all the state they have.

The objective's own weights lie in the model's folder as `heads.safetensors`, so that another method can start from
them: no other library looks for the file, and a copied folder has it.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from midmask.encoders.reading import library_reading
from midmask.errors import UserError
from midmask.objectives import Objective
from midmask.store.place import Place
from midmask.training.setup import TrainingSetup

POSITION = "position.json"
OBJECTIVE = "objective.safetensors"
OPTIMISER = "optimiser.safetensors"
KEPT = 2


def save(place: Place, module: nn.Module, optimiser: torch.optim.AdamW, position: dict[str, Any]) -> None:
    """Writes one checkpoint; it exists once its position is there."""
    digests = {
        OBJECTIVE: _write(place / OBJECTIVE, dict(_tensors(module))),
        OPTIMISER: _write(place / OPTIMISER, dict(_moments(module, optimiser))),
    }
    (place / POSITION).write_json({**position, "sha256": digests})


def load(place: Place, module: nn.Module, optimiser: torch.optim.AdamW) -> dict[str, Any]:
    """Puts a checkpoint into a module and its optimiser, and returns its position.

    Raises:
        ValueError: if the tensors are not those of this module.
        UserError: if a file is damaged.
    """
    position = read_position(place)
    saved = _read(place, OBJECTIVE, position)
    tensors = dict(_tensors(module))
    if saved.keys() != tensors.keys():
        raise ValueError(
            f"{place}: tensors {sorted(saved.keys() ^ tensors.keys())[:5]} are not in both checkpoint and model"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
    _load_moments(_read(place, OPTIMISER, position), module, optimiser)
    return position


def read_position(place: Place) -> dict[str, Any]:
    """Reads the position of a checkpoint; raises UserError if the file is cut short."""
    try:
        position: dict[str, Any] = (place / POSITION).read_json()
        position["step"]
    except (ValueError, KeyError, TypeError):
        raise _damage_error(place, POSITION) from None
    return position


def _write(file: Place, tensors: dict[str, Tensor]) -> str:
    """Writes the tensors; returns the SHA-256 of the file."""
    data = safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    file.write(data)
    return hashlib.sha256(data).hexdigest()


def _read(place: Place, name: str, position: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file; raises UserError unless its bytes are those that the position states."""
    try:
        data = (place / name).read()
        stated = position.get("sha256", {}).get(name)
        if stated not in (None, hashlib.sha256(data).hexdigest()):
            raise _damage_error(place, name)
        return dict(safetensors.torch.load(data))
    except (FileNotFoundError, safetensors.SafetensorError):
        raise _damage_error(place, name) from None


def _damage_error(place: Place, name: str) -> UserError:
    return UserError(
        f"{place / name} is damaged: its contents have changed since it was written. Delete {place} and run the same "
        "command again; the training goes on from the checkpoint before it."
    )


def newest(folder: Place) -> Place | None:
    """The newest complete checkpoint of a run."""
    for name in reversed(folder.names()):
        if (folder / name / POSITION).exists():
            return folder / name
    return None


def prune(folder: Place) -> None:
    """Deletes all but the newest complete checkpoints, and files that a kill has left half written."""
    complete = [name for name in folder.names() if (folder / name / POSITION).exists()]
    for name in folder.names():
        if name not in complete[-KEPT:]:
            (folder / name / POSITION).delete()  # first, lest half a checkpoint be taken for a whole one
            (folder / name).delete()


def step_name(step: int) -> str:
    return f"step-{step:08d}"


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, tied ones once, and the buffers that are saved."""
    tied = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    yield from module.named_parameters()
    yield from ((name, value) for name, value in module.state_dict(keep_vars=True).items() if name not in tied)


def _moments(module: nn.Module, optimiser: torch.optim.AdamW) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in module.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            yield f"{key}/{name}", value


def _load_moments(saved: dict[str, Tensor], module: nn.Module, optimiser: torch.optim.AdamW) -> None:
    names = {parameter: name for name, parameter in module.named_parameters()}
    states: dict[int, dict[str, Tensor]] = {}
    order = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(order):
        keys = {key: f"{key}/{names[parameter]}" for key in ("step", "exp_avg", "exp_avg_sq")}
        state = {key: saved[name] for key, name in keys.items() if name in saved}
        if state:  # a parameter that never had a gradient has none
            states[index] = state
    # load_state_dict puts the step counts where this device's AdamW wants them
    optimiser.load_state_dict({"state": states, "param_groups": optimiser.state_dict()["param_groups"]})


HEADS = "heads.safetensors"


def save_heads(objective: Objective, name: str, folder: Path) -> None:
    """Writes the heads, if there are any. The file's metadata has `name`, the objective's."""
    plain = torch.contiguous_format
    heads = {key: tensor.detach().cpu().clone(memory_format=plain) for key, tensor in objective.heads_state().items()}
    if heads:
        safetensors.torch.save_file(heads, folder / HEADS, {"objective": name})


def take_heads(objective: Objective, setup: TrainingSetup) -> dict[str, int]:
    """Takes over the heads in the folder that a run starts from: those whose name and shape are the objective's.

    Returns:
        heads_taken, heads_fresh: how many tensors come from the folder, and how many have fresh weights.

    Raises:
        UserError: if the file cannot be read.
    """
    folder, taken = setup.origin, list[str]()
    if folder is not None and (folder / HEADS).is_file():
        with library_reading(folder / HEADS, "heads"):
            saved = safetensors.torch.load_file(folder / HEADS)
        taken = objective.take_over(saved)
    return {"heads_taken": len(taken), "heads_fresh": len(objective.heads_state()) - len(taken)}
