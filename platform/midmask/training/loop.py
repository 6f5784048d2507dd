"""The training loop: one for pre-training and fine-tuning, in one process or as one of several workers.

Every loss is divided by the number of its targets over *all* workers and micro-batches, so how a global batch is cut
changes nothing. Dropout is seeded anew at each step from (seed, step, worker): no state of a random generator has to be
saved.

A batch whose rows meet in the loss does not fit in memory at once, and cannot simply be cut. So its gradients are
cached (GradCache; Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup"): all
vectors without a graph; the coupled loss and its gradient by vector; then each micro-batch again with a graph, and the
product of its vectors (and, once, of the weights that the coupled loss has itself) with those gradients in the place of
the coupled loss. The gradient is exact, dropout included: each micro-batch's second pass begins with the random state
of its first.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from midmask.core.batch import Batch, Loss, TokenRows
from midmask.core.torch_randomness import seed_dropout
from midmask.encoders.precision import autocast_type
from midmask.objectives import CoupledObjective, Objective
from midmask.objectives import distributed as world
from midmask.training.batches import ReadCounts, StepBatches
from midmask.training.optimiser import TrainConfig, learning_rate, update


@dataclass(frozen=True)
class Cached:
    """What the second pass of one micro-batch needs: the gradient by each of its vectors, and the random state."""

    gradients: tuple[Tensor, ...]
    random: tuple[Tensor, ...]
    # Each parameter that rows meet through, and its gradient; of the last micro-batch alone
    weights: tuple[tuple[Tensor, Tensor], ...] = ()

    def replay(self) -> None:
        """Sets the random state in which the first pass began."""
        torch.set_rng_state(self.random[0])
        for state in self.random[1:]:
            torch.cuda.set_rng_state(state, self.gradients[0].device)

    def product(self, vectors: tuple[Tensor, ...]) -> Tensor:
        """A loss whose gradient by the vectors and the weights is the cached one, shape []."""
        products = (*zip(vectors, self.gradients, strict=True), *self.weights)
        return torch.stack([(value * gradient).sum() for value, gradient in products]).sum()


def cache_gradients(
    objective: CoupledObjective, drawn: list[Any], counts: dict[str, Tensor]
) -> tuple[list[Cached], Loss]:
    """The first pass: what each micro-batch needs for its second, and the coupled parts of the loss.

    Where workers meet in `couple`, all of them must call this in the same step, however many micro-batches each has.
    """
    (device,) = {parameter.device for parameter in objective.parameters()}
    states, rows = [], []
    for each in drawn:
        states.append(_random_state(device))
        with torch.no_grad():
            rows.append(objective.represent(each))
    vectors = tuple(torch.cat(pieces).requires_grad_() for pieces in zip(*(row.vectors for row in rows), strict=True))
    facts = tuple(torch.cat(pieces) for pieces in zip(*(row.facts for row in rows), strict=True))
    coupled = Loss(objective.couple(vectors, facts))
    weights = objective.coupling()
    with torch.autocast(device.type, enabled=False):  # else the products of the backward pass would be in bf16
        all_gradients = torch.autograd.grad(coupled.total(counts), (*vectors, *weights))
    gradients, of_weights = all_gradients[: len(vectors)], all_gradients[len(vectors) :]
    lengths = [[len(row.vectors[index]) for row in rows] for index in range(len(vectors))]
    pieces = (torch.split(gradient, each) for gradient, each in zip(gradients, lengths, strict=True))
    cached = [Cached(*pair) for pair in zip(zip(*pieces, strict=True), states, strict=True)]
    cached[-1] = replace(cached[-1], weights=tuple(zip(weights, of_weights, strict=True)))
    return cached, coupled


def _random_state(device: torch.device) -> tuple[Tensor, ...]:
    """The random state of the CPU's generator, and of the device's if it has its own."""
    device_state = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return torch.get_rng_state(), *device_state


@dataclass(frozen=True)
class StepRecord:
    """What happened in one step, over all workers. Tensors stay on the device until somebody reads them."""

    step: int
    sums: Tensor  # float64: the loss's total, then each part's sum over its targets
    # float64: each part's targets, then `ReadCounts`
    counts: Tensor
    gradient_norms: Tensor  # before clipping, of all parameters and of the heads, [2]
    learning_rate: float
    wait_seconds: float
    seconds: float
    first: bool


class Divided(nn.Module):
    """An objective whose loss is divided by global counts: (total with gradient, its value and the parts' sums).

    With a cached first pass the coupled parts are left out of the values: `cache_gradients` has given them already.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, drawn: Any, counts: dict[str, Tensor], cached: Cached | None = None) -> tuple[Tensor, Tensor]:
        if cached is None or not isinstance(self.objective, CoupledObjective):
            loss = self.objective(drawn)
            return loss.total(counts), values_of(loss, counts)
        cached.replay()
        rows = self.objective.represent(drawn)
        product, alone = cached.product(rows.vectors), Loss(rows.parts())
        total = product + alone.total(counts) if alone.parts else product
        return total, values_of(alone, counts)


def values_of(loss: Loss, counts: dict[str, Tensor]) -> Tensor:
    """The total, then the sum of each part that `counts` names, 0 for one that the loss lacks; float64, no gradient."""
    (device,) = {count.device for count in counts.values()}
    nothing = torch.zeros((), dtype=torch.float64, device=device)
    total = loss.total(counts) if loss.parts else nothing
    sums = [loss.parts[name].total if name in loss.parts else nothing for name in counts]
    return torch.stack([value.detach().double() for value in (total, *sums)])


def prepare_model(objective: Objective) -> nn.Module:
    """The objective as the loop calls it; of several workers, gradients are averaged over them."""
    model = Divided(objective)
    if world.size() == 1:  # Ray Train opens a process group for one worker too
        return model
    # Fine-tuning leaves the MLM head without gradient, hence find_unused_parameters.
    return DistributedDataParallel(model, find_unused_parameters=True, gradient_as_bucket_view=True)


def optimise(
    model: nn.Module,
    objective: Objective,
    optimiser: torch.optim.AdamW,
    config: TrainConfig,
    work: Iterator[StepBatches],
    device: torch.device,
) -> Iterator[StepRecord]:
    """Trains on step after step; the record of a step is given when its update is done (or, on a GPU, queued)."""
    first = True
    begun = time.perf_counter()
    for batches in work:
        waited = time.perf_counter() - begun
        micro = [to_device(batch, device) for batch in batches.micro]
        seed_dropout(config.seed, batches.step, world.rank())
        sums, counts = accumulate(model, objective, config, micro, batches.read)
        norms = update(objective, optimiser, config, batches.step)
        now = time.perf_counter()
        rate = learning_rate(config, batches.step)
        yield StepRecord(batches.step, world.all_sum(sums), counts, norms, rate, waited, now - begun, first)
        begun, first = time.perf_counter(), False


def accumulate(
    model: nn.Module, objective: Objective, config: TrainConfig, batches: list[Batch], read: ReadCounts
) -> tuple[Tensor, Tensor]:
    """The gradient of one step, summed over micro-batches: (local sums, global counts) as in `StepRecord`."""
    names = objective.parts
    drawn = [objective.draw(batch) for batch in batches]
    targets = [objective.counts(each) for each in drawn]
    local = torch.stack([torch.stack([each[name] for each in targets]).sum().double() for name in names])
    device = local.device
    counts = world.all_sum(torch.cat([local, torch.tensor(read, dtype=torch.float64, device=device)]))
    divisors = {name: counts[index].float() for index, name in enumerate(names)}
    bf16 = autocast_type(config.precision, device)
    sums = torch.zeros(1 + len(names), dtype=torch.float64, device=device)
    cached: list[Cached] | list[None] = [None] * len(drawn)
    if isinstance(objective, CoupledObjective) and (len(drawn) > 1 or is_cut(config)):
        with torch.autocast(device.type, dtype=bf16, enabled=bf16 is not None):
            cached, coupled = cache_gradients(objective, drawn, divisors)
        sums += values_of(coupled, divisors)
    for index, (each, first_pass) in enumerate(zip(drawn, cached, strict=True)):
        last = index == len(drawn) - 1
        quiet = model.no_sync() if isinstance(model, DistributedDataParallel) and not last else contextlib.nullcontext()
        with quiet:
            with torch.autocast(device.type, dtype=bf16, enabled=bf16 is not None):
                total, values = model(each, divisors, first_pass)
            (total * world.size()).backward()  # DistributedDataParallel averages; a sum is wanted
        sums += values
    return sums, counts


def is_cut(config: TrainConfig) -> bool:
    """Whether any worker's share of a step takes more than one micro-batch. Workers whose rows are compared in a loss
    must agree on this, and their shares may differ by a row.
    """
    largest = -(-config.batch_size // world.size())
    return config.micro_batch is not None and config.micro_batch < largest


def to_device(batch: Batch, device: torch.device) -> Batch:
    def there(x: Tensor) -> Tensor:
        return x.to(device, non_blocking=True)

    def move(rows: TokenRows) -> TokenRows:
        weights_BL = None if rows.weights_BL is None else there(rows.weights_BL)
        return TokenRows(there(rows.ids_BL), there(rows.lengths_B), there(rows.keys_B), weights_BL)

    teacher = None if batch.teacher is None else there(batch.teacher)
    return replace(batch, texts={name: move(rows) for name, rows in batch.texts.items()}, teacher=teacher)
