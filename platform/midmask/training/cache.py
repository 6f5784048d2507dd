"""Gradient caching (GradCache; Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited
setup").

A batch whose rows meet in the loss does not fit in memory at once, and cannot simply be cut. So: all vectors without a
graph; the coupled loss and its gradient by vector; then each micro-batch again with a graph, and the product of its
vectors (and, once, of the weights that the coupled loss has itself) with those gradients in the place of the coupled
loss. The gradient is exact, dropout included: each
micro-batch's second pass begins with the random state of its first.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from midmask.batch import Loss
from midmask.objectives import CoupledObjective


@dataclass(frozen=True)
class Cached:
    """What the second pass of one micro-batch needs: the gradient by each of its vectors, and the random state.

    weights: each parameter that rows meet through, and its gradient; of the last micro-batch alone.
    """

    gradients: tuple[Tensor, ...]
    random: tuple[Tensor, ...]
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
        found = torch.autograd.grad(coupled.total(counts), (*vectors, *weights))
    gradients, of_weights = found[: len(vectors)], found[len(vectors) :]
    lengths = [[len(row.vectors[index]) for row in rows] for index in range(len(vectors))]
    pieces = (torch.split(gradient, each) for gradient, each in zip(gradients, lengths, strict=True))
    cached = [Cached(*pair) for pair in zip(zip(*pieces, strict=True), states, strict=True)]
    cached[-1] = replace(cached[-1], weights=tuple(zip(weights, of_weights, strict=True)))
    return cached, coupled


def _random_state(device: torch.device) -> tuple[Tensor, ...]:
    """Of the CPU's generator, and of the device's if it has its own."""
    own = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return torch.get_rng_state(), *own
