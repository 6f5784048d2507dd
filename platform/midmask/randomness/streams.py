"""Streams of random numbers, each by its seed: what is drawn from one depends on what was drawn from it before."""

import hashlib
import random

import numpy as np


def numpy_stream(seed: int) -> np.random.Generator:
    """PCG64 by numpy's own way from a seed to its state."""
    return np.random.default_rng(seed)


def named_stream(name: str) -> np.random.Generator:
    """PCG64 by the SHA-256 of a name, which holds all that the stream is to depend on."""
    return numpy_stream(digest(name, 16))


def python_stream(seed: int) -> random.Random:
    """Python's Mersenne twister."""
    return random.Random(seed)


def digest(name: str, size: int) -> int:
    """The first `size` bytes of a name's SHA-256 as a number."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size])
