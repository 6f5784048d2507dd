"""FLOPs of whatever runs, a step of an objective, and what autograd keeps of a forward pass."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from midmask.batch import Batch
from midmask.flops import flop_counter


def count_flops(work: Callable[[], object]) -> float:
    """FLOPs of one call of `work`."""
    with flop_counter() as counter:
        work()
    return float(counter.get_total_flops())


def learn(objective: nn.Module, batch: Batch) -> Callable[[], None]:
    """Masks, forward and backward pass."""

    def step() -> None:
        loss = objective(objective.draw(batch))  # type: ignore[operator]
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()

    return step


def kept_bytes(module: nn.Module, work: Callable[[], object]) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, each storage once, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work()
    return sum(size for size, _ in kept.values())
