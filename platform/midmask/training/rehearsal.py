"""How many rows go through a model at once on a device: as many as its memory holds, found by a rehearsal.

A step's rows may be cut in any way without changing its result: sums are added up, and rows that meet in the loss are
cut with the gradient cache. So nobody has to set `train.micro_batch`. What the memory holds are the bytes that autograd
saves in a forward pass for the backward pass, on real and on fake tensors.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from midmask.encoders.precision import autocast_type
from midmask.errors import UserError
from midmask.objectives import CoupledObjective, Objective
from midmask.objectives import distributed as world
from midmask.text.vocabulary import Vocabulary
from midmask.training.loop import to_device
from midmask.training.setup import TrainingSetup

logger = logging.getLogger(__name__)


def kept_bytes(module: nn.Module, forward: Callable[[], object]) -> int:
    """Bytes of the storages that a forward pass keeps for the backward pass, each once; weights are not counted."""
    reference: Callable[[Any], StorageWeakRef] = StorageWeakRef
    weights = {reference(parameter.untyped_storage()) for parameter in module.parameters()}
    kept: dict[StorageWeakRef, Tensor] = {}  # held, so that no later tensor can take their storages

    def keep(tensor: Tensor) -> Tensor:
        if (storage := reference(tensor.untyped_storage())) not in weights:
            kept[storage] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


GIB = 2**30
USABLE = 0.92
"""Share of a GPU's memory that tensors can have; the rest is the CUDA context's and lost between blocks."""
WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
"""Bytes a parameter, fp32; AdamW has two moments."""
BESIDE_WEIGHTS = GRADIENT + MOMENTS
CACHED_COPIES = 2
"""Of the vectors of all rows, where they are cached: the vectors and their gradient."""


def even_split(share: int, fitting: int) -> int:
    """Rows of a micro-batch so that as few as possible, about equally large ones, make `share` rows."""
    pieces = -(-share // fitting)
    return -(-share // pieces)


def fit_micro_batch(
    objective: Objective, setup: TrainingSetup, vocabulary: Vocabulary, device: torch.device
) -> int | None:
    """Rows that a worker computes at once, the same number on all workers; none: all of its share fit, or nothing
    limits the memory.

    Raises:
        UserError: if not even one row fits.
    """
    config = setup.train
    room = _room(objective, config.memory_gib, device)
    if config.micro_batch is not None or room is None:
        return config.micro_batch
    share = -(-config.batch_size // world.size())
    single, double = (_kept_bytes(objective, setup, vocabulary, rows, device) for rows in (1, 2))
    each, once = double - single, 2 * single - double
    fitting = int((room - once) // each)
    if fitting < share:
        fitting = int((room - once - share * _cached_bytes(objective, setup, vocabulary, device)) // each)
    fitting = world.least(fitting)
    if fitting < 1:
        raise UserError(
            f"one row of the training keeps {(single + each) / GIB:.2f} GiB beside the weights, and there are "
            f"{max(room, 0) / GIB:.2f} GiB; take a smaller backbone.name, shorter rows (tokens.max_length), or "
            "a device with more memory"
        )
    if fitting >= share:
        return None
    micro_batch = even_split(share, fitting)
    logger.info("%s.micro_batch: %d of %d rows at once, which is what fits into memory", setup.path, micro_batch, share)
    return micro_batch


def _room(objective: nn.Module, limit: float | None, device: torch.device) -> float | None:
    """Bytes for what a forward pass keeps, beside weights, gradients and moments; none: unlimited."""
    parameters = sum(parameter.numel() for parameter in objective.parameters())
    beside = (BESIDE_WEIGHTS + GRADIENT * (world.size() > 1)) * parameters  # DistributedDataParallel's buckets
    if limit is not None:
        return limit * GIB - WEIGHT * parameters - beside
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return USABLE * free - beside


def _kept_bytes(
    objective: Objective, setup: TrainingSetup, vocabulary: Vocabulary, rows: int, device: torch.device
) -> int:
    """What so many of the longest rows keep for the backward pass."""
    bf16 = autocast_type(setup.train.precision, device)
    batch = to_device(setup.longest_rows(rows, vocabulary), device)
    with torch.autocast(device.type, dtype=bf16, enabled=bf16 is not None):
        return kept_bytes(objective, lambda: objective(objective.draw(batch)))


def _cached_bytes(objective: Objective, setup: TrainingSetup, vocabulary: Vocabulary, device: torch.device) -> int:
    """What the gradient cache holds of a row."""
    if not isinstance(objective, CoupledObjective):
        return 0
    with torch.no_grad():
        made = objective.represent(objective.draw(to_device(setup.longest_rows(1, vocabulary), device)))
    facts = sum(tensor.nbytes for tensor in made.facts)
    return facts + CACHED_COPIES * sum(vector.nbytes for vector in made.vectors)
