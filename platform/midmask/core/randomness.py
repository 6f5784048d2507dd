"""Seeds, hashes and random streams without torch; generators are made here and in the two modules named below alone.

    of a text       BLAKE2b, keyed by a salt          splits, samples of ids, keys of documents   here
    of two numbers  SplitMix64                        which negative a query draws                here
    a stream        PCG64, or Python's, by a seed     orders of training, resamples, span lengths here
    of a row        SplitMix64 of (seed, epoch, row)  masks, crops, guesses; a `Purpose` each     `masking.randomness`
    torch's own     Mersenne twister, by a seed       weights; dropout by (seed, step, rank)     `core.torch_randomness`

What can be a hash is one, so that it does not depend on what was drawn before, on the batch or on the worker. The
schemes stay apart because each is in artifacts that exist: one for all would change every number.
"""

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def hash64(texts: Sequence[str], salt: str = "") -> Hashes:
    """One 64-bit hash per text (BLAKE2b, keyed by `salt`), the same on every machine; uint64 [N]."""
    key = salt.encode()
    return np.frombuffer(b"".join(hashlib.blake2b(t.encode(), digest_size=8, key=key).digest() for t in texts), "<u8")


def uniform(texts: Sequence[str], salt: str) -> NDArray[np.float64]:
    """One number in [0, 1) per text, a function of text and salt only; float64 [N]."""
    return (hash64(texts, salt) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def mix(key: Any, number: Any) -> Any:
    """A 64-bit hash of two numbers, elementwise: the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number) + np.uint64(0x632BE59BD9B4E019)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def fixed_sample(names: Sequence[str], limit: int | None) -> list[str]:
    """The first `limit` names by SHA-256: the same ones in every run. None: all, as they are."""
    if limit is None or limit >= len(names):
        return list(names)
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:limit]


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
