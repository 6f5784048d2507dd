"""Torch's own generators: fresh weights, dropout, made-up tensors."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from midmask.core.randomness import digest


def torch_stream(seed: int) -> torch.Generator:
    """A generator of its own, on the CPU."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def fresh_weights(seed: int) -> Iterator[None]:
    """What torch draws on a CPU within depends on the seed alone; afterwards its generator is where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def seed_dropout(seed: int, step: int, rank: int) -> None:
    """Sets torch's generators anew for a step of a worker, so that none of their states has to be saved."""
    torch.manual_seed(dropout_seed(seed, step, rank))


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """63 bits of a hash of (seed, step, rank)."""
    return digest(f"dropout/{seed}/{step}/{rank}", 8) >> 1
