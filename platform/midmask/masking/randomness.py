"""Random numbers of masks: hashes of (row key, purpose, draw, position).

So a mask depends on (seed, epoch, example) alone: it is the same on a CPU and a GPU, in any batch, on any worker and
whatever the padding. Hashes are 32-bit integers with wrap-around (the finalisers of SplitMix64 for keys, Steele et al.
2014, and of MurmurHash3, Appleby 2011, for positions).
"""

from dataclasses import replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from midmask.core.batch import TokenRows

_U = np.uint64


class Purpose(IntEnum):
    """The use of a random number; two purposes never share a number."""

    SELECT = 1
    CORRUPT = 2
    REPLACE = 3
    DECODER = 4
    PICK = 5
    FINGERPRINT = 6
    REKEY = 7
    GENERATE = 8
    CROP = 9
    DELETE = 10
    CLOZE = 11
    GUESS = 12


def row_keys(seed: int, epoch: int, rows: npt.NDArray[np.int64]) -> Tensor:
    """One 64-bit key per row, from (seed, epoch, row number); int64, [B]."""
    with np.errstate(over="ignore"):
        stream = _splitmix(_splitmix(np.array([seed]).astype(np.uint64)) + _U(epoch))
        keys = _splitmix(stream + rows.astype(np.uint64))
    return torch.from_numpy(keys.view(np.int64))


def _splitmix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + _U(0x9E3779B97F4A7C15)
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


def draw_seeds(keys_B: Tensor, purpose: Purpose, draws: int = 1) -> Tensor:
    """A 32-bit seed for each of `draws` independent draws per row; int32, [B, draws]."""
    numbers = torch.arange(draws, device=keys_B.device) + (int(purpose) << 32)
    x = keys_B[:, None] + numbers * -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return (x >> 32).to(torch.int32)


def rekey(text: TokenRows) -> TokenRows:
    """The same rows under other keys, so that every draw is independent of those for the rows as they were."""
    high, low = draw_seeds(text.keys_B, Purpose.REKEY, 2).to(torch.int64).unbind(1)
    return replace(text, keys_B=(high << 32) ^ low)


def hashes(seeds: Tensor, positions: Tensor) -> Tensor:
    """32 random bits for every (seed, position), broadcast; int32."""
    x = seeds + positions.to(torch.int32) * -1640531527
    return _scramble(x, torch.empty_like(x))


def _scramble(x: Tensor, scratch: Tensor) -> Tensor:
    """The finaliser of MurmurHash3 in place. A shift of int32 copies the sign, hence the bit masks."""
    for shift, kept, factor in ((16, 0xFFFF, -2048144789), (13, 0x7FFFF, -1028477387), (16, 0xFFFF, 1)):
        torch.bitwise_right_shift(x, shift, out=scratch)
        x.bitwise_xor_(scratch.bitwise_and_(kept))
        if factor != 1:
            x.mul_(factor)
    return x


def uniform(keys_B: Tensor, purpose: Purpose, length: int) -> Tensor:
    """A number in [0, 1) for each row and position: multiples of 2**-24, float32, [B, length]."""
    bits = hashes(draw_seeds(keys_B, purpose), torch.arange(length, device=keys_B.device))
    return ((bits >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def integers(keys_B: Tensor, purpose: Purpose, length: int, below: int | Tensor) -> Tensor:
    """A whole number in [0, below) for each row and position; int64, [B, length]. `below`: one number, or [B, 1]."""
    bits = hashes(draw_seeds(keys_B, purpose), torch.arange(length, device=keys_B.device))
    return ((bits.to(torch.int64) & 0xFFFFFFFF) * below) >> 32


def fingerprints(text: TokenRows) -> Tensor:
    """A 64-bit hash of each row's tokens, whatever its padding; equal rows have equal hashes; int64, [B]."""
    positions = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    seeds = draw_seeds(text.ids_BL.flatten(), Purpose.FINGERPRINT, 2).view(*text.ids_BL.shape, 2)
    bits = hashes(seeds, positions[None, :, None]).to(torch.int64)
    real = positions < text.lengths_B[:, None]
    low, high = (bits * real[..., None]).sum(1).unbind(-1)
    return (high << 32) ^ low
