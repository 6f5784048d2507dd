"""Bytes that autograd saves in a forward pass for the backward pass, on real and on fake tensors.

Of layers with activation checkpointing: the inputs of all of them, and all that one layer saves while the backward pass
computes it again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from midmask.layers import counted_layers

_reference: Callable[[Any], StorageWeakRef] = StorageWeakRef


class KeptTensors:
    """The storages that a forward pass keeps, each once; weights are not counted."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = {_reference(parameter.untyped_storage()) for parameter in module.parameters()}
        self._kept: dict[StorageWeakRef, tuple[int, Tensor]] = {}

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self._kept.values())

    def keep(self, tensor: Tensor) -> Tensor:
        """Counts a tensor; it is held, so that no later one can take its storage."""
        storage = tensor.untyped_storage()
        if (own := _reference(storage)) not in self._weights:
            self._kept[own] = (storage.nbytes(), tensor)
        return tensor


@contextmanager
def kept_tensors(module: nn.Module) -> Iterator[KeptTensors]:
    """Counts what the forward passes of this context keep."""
    found = KeptTensors(module)
    with (
        counted_layers(module),
        torch.autograd.graph.saved_tensors_hooks(found.keep, lambda tensor: tensor),
    ):
        yield found
