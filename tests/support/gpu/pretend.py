"""A device that only pretends: its tensors are computed on the CPU, but it refuses what a GPU refuses.

Torch has a place for backends made in Python; `pretend` is one. A tensor there holds one on the CPU and says that it is
elsewhere. An operation on tensors of both devices raises, as on a GPU, unless the one on the CPU is a single number or
an index; so do `.numpy()` and whatever else reaches for memory of the device. Control flow, sizes and gradients are
real. What it can't show is another kernel's arithmetic: a sum in another order, or what autocast does on a GPU.

Importing this module changes torch for the whole process, so it is for a process of its own (`tests.gpu.pretended`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from midmask.heads import CHUNK_VALUES, TILE_VALUES
from midmask.objectives.pretraining.generator import GUESSES_AT_ONCE
from midmask.retrieve.vectors import BATCH_TOKENS

NAME = "pretend"
TABLES = (CHUNK_VALUES, TILE_VALUES, GUESSES_AT_ONCE, BATCH_TOKENS)
CPU = torch.device("cpu")
_setup_privateuseone_for_python_backend(NAME)  # here: with the first backward pass, torch makes a thread a device
torch.get_device_module(NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]

MOVES = ("aten::copy_", "aten::_to_copy")
INDEXED = ("aten::index.Tensor", "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put")


class Held(Tensor):
    """A tensor of the device. `held`: where its numbers are, on the CPU."""

    is_cuda = True
    held: Tensor

    def tolist(self) -> Any:
        return self.held.tolist()

    def storage(self) -> Any:
        """By whose address libraries tell tied weights."""
        return self.held.storage()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    @staticmethod
    def __new__(cls, held: Tensor) -> "Held":
        made: Held = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Catches what makes tensors of nothing, which no tensor of the device is an argument of."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


def _compute(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = operation._schema.name
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    held = [value for value in tensors if isinstance(value, Held)]
    if held and name not in MOVES:
        _refuse_others(name, tensors)
    there = bool(held)
    if kwargs.get("device") is not None:
        there, kwargs = torch.device(kwargs["device"]).type == NAME, {**kwargs, "device": CPU}
    if name == "aten::_fused_sdp_choice":
        return 0  # by plain products
    result = operation(*tree_map(_held, args), **tree_map(_held, kwargs))
    if name == "aten::copy_":
        return args[0]
    known = {id(value.held): value for value in held}  # what was changed in place is the same tensor
    return (
        tree_map(lambda value: known[id(value)] if id(value) in known else _there(value), result) if there else result
    )


def _refuse_others(name: str, tensors: list[Tensor]) -> None:
    places = tensors[:1] if name in INDEXED else tensors  # indices may be on the CPU
    others = [value for value in places if not isinstance(value, Held) and value.dim()]
    if others:
        raise RuntimeError(
            f"{name}: expected all tensors to be on the same device, but one of shape {tuple(others[0].shape)} is on "
            f"{others[0].device} and another one on {NAME}"
        )


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Held) else value


def _there(value: Any) -> Any:
    return Held(value) if isinstance(value, Tensor) and not isinstance(value, Held) else value


@contextmanager
def pretended() -> Iterator[torch.device]:
    """The device, for as long as the context lasts; tables of numbers by device have those of a GPU for it."""
    lifted, inference_mode = torch._C._only_lift_cpu_tensors(), torch.inference_mode
    for table in TABLES:
        table[NAME] = table["cuda"]
    torch._C._set_only_lift_cpu_tensors(True)  # else torch.tensor(…) would make its tensors unseen
    torch.__future__.set_swap_module_params_on_conversion(True)  # else tied weights would come apart
    torch.inference_mode = torch.no_grad  # type: ignore[assignment,misc]  # tensors made in Python can't be its kind
    try:
        with _Factories():
            yield torch.device(NAME, 0)
    finally:
        torch.inference_mode = inference_mode  # type: ignore[misc]
        torch.__future__.set_swap_module_params_on_conversion(False)
        torch._C._set_only_lift_cpu_tensors(lifted)
        for table in TABLES:
            del table[NAME]
