"""What is hidden from whom: corrupted inputs and visibility matrices, as tensors, without a loop over tokens.

Every random number is a hash of (row key, purpose, draw, position). So a mask depends on (seed, epoch, example) alone:
it is the same on a CPU and a GPU, in any batch, on any worker and whatever the padding. Hashes are 32-bit integers with
wrap-around (the finalisers of SplitMix64 for keys, Steele et al. 2014, and of MurmurHash3, Appleby 2011, for
positions).

Shapes: B rows, L tokens of a padded row, K masks drawn for one row.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from midmask.nouns import TokenRows
from midmask.tokens import Vocabulary

QUOTA_LIMIT = 512
"""Most tokens that whole-word masking selects in one row; a constant of every published sampler."""

POOL = 256
"""Most masks that RetroMAE draws for one row before its positions choose among them."""

LOWEST, HIGHEST = -(2**31), 2**31 - 1
POSITION_BITS = 13
"""Low bits of a word's key that hold its position, so that no two words of a row tie. 2**13 is the longest row there
is."""

CACHED, ON_DEVICE = 2**17, 2**25
"""Keys that are worked on at a time, on a CPU and on a GPU. On a CPU they and their scratch stay in the second-level
cache."""

_U = np.uint64


class Purpose(IntEnum):
    """What a random number decides; two purposes never share one."""

    SELECT = 1
    CORRUPT = 2
    REPLACE = 3
    DECODER = 4
    PICK = 5
    FINGERPRINT = 6


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


@dataclass(frozen=True)
class Words:
    """Where the words of a batch are. start_BL: position of the first token of a token's word, int32; size_BL: tokens
    of that word, int32; candidate_BL: real and not a special token. [UNK] is a candidate."""

    start_BL: Tensor
    size_BL: Tensor
    candidate_BL: Tensor


def find_words(text: TokenRows, vocabulary: Vocabulary) -> Words:
    """Words are a token and the continuations right after it; a special token ends a word."""
    positions_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    candidate = (positions_L < text.lengths_B[:, None]) & ~vocabulary.special_V[text.ids_BL]
    joined = candidate & vocabulary.continues_V[text.ids_BL]
    joined[:, 0] = False
    joined[:, 1:] &= candidate[:, :-1]
    start = torch.where(joined, 0, positions_L).cummax(1).values
    size = torch.zeros_like(start).scatter_add_(1, start, torch.ones_like(start)).gather(1, start)
    return Words(start.to(torch.int32), size.to(torch.int32), candidate)


def quota(lengths: Tensor, ratio: float) -> Tensor:
    """Tokens to select in rows of these lengths: round half to even, at least 1, at most 512; int64."""
    return (lengths.to(torch.float64) * ratio).round().clamp(1, QUOTA_LIMIT).to(torch.int64)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps torch on the calling thread. These are thousands of operations of some microseconds: where cores are busy,
    waiting for a second thread at the end of each costs a hundred times what it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def whole_word_masks(
    words: Words, lengths_B: Tensor, seeds_BK: Tensor, *, ratio: float, count_specials: bool = True
) -> Tensor:
    """K whole-word masks per row, with exactly the law of the published sampler; bool, [B, K, L].

    Published (the whole-word collator that RetroMAE, Condenser and CoT-MAE share): walk over the words in random order,
    take a word if the row's quota allows all of it, else skip it. Here each word has a random key and the order is that
    of the keys. All words up to the one that meets the quota are found by selection instead of sorting; only rows where
    that word does not fit exactly go on, to the next words that do.

    Args:
        ratio: share of a row's tokens to hide, in (0, 1).
        count_specials: whether [CLS] and [SEP] count in the length that the quota is a share of (RetroMAE: yes;
            Condenser, CoT-MAE: no).
    """
    rows, length = words.start_BL.shape
    draws = seeds_BK.shape[1]
    counted = lengths_B if count_specials else words.candidate_BL.sum(1)
    # One rank serves all rows: where a row's quota is lower, as many of its non-candidates get the lowest key.
    rank = int(quota(torch.tensor([length]), ratio))
    filled = (~words.candidate_BL).cumsum(1) <= (rank - quota(counted, ratio))[:, None]
    others = torch.where(filled, LOWEST, HIGHEST).to(torch.int32)
    keep = torch.where(words.candidate_BL, -(2**POSITION_BITS), 0).to(torch.int32)
    put = torch.where(words.candidate_BL, words.start_BL, others)
    masks = torch.empty((rows, draws, length), dtype=torch.bool, device=seeds_BK.device)
    at_once = CACHED if seeds_BK.device.type == "cpu" else ON_DEVICE
    step = max(1, at_once // (draws * length))
    for at in range(0, rows, step):
        part = slice(at, at + step)
        keys = hashes(seeds_BK[part, :, None], words.start_BL[part, None, :])
        keys.bitwise_and_(keep[part, None, :]).bitwise_or_(put[part, None, :])
        _accept(keys, words.size_BL[part], rank, out=masks[part])
    return masks.logical_and_(words.candidate_BL[:, None, :])


def _accept(keys: Tensor, size_BL: Tensor, rank: int, *, out: Tensor) -> None:
    """Writes which tokens of [B, K, L] the greedy walk takes, when the quota is `rank` tokens."""
    last = _smallest(keys, rank)
    within = (keys <= last[..., None]).sum(-1)
    has_word = last < HIGHEST
    fits = has_word & (within == rank)
    torch.lt(keys, (last + fits.to(torch.int32))[..., None], out=out)
    example, draw = (has_word & ~fits).nonzero(as_tuple=True)
    if not len(example):
        return
    keys, last, size = keys[example, draw], last[example, draw], size_BL[example]
    spare = rank - (keys < last[:, None]).sum(-1)
    taken = out[example, draw]
    while bool((spare > 0).any()):
        possible = (keys > last[:, None]) & (size <= spare[:, None])
        last = torch.where(possible, keys, HIGHEST).amin(-1)
        word = keys == last[:, None]
        taken |= word
        spare = torch.where(last < HIGHEST, spare - word.sum(-1), 0)
    out[example, draw] = taken


def _smallest(keys: Tensor, rank: int) -> Tensor:
    """The `rank`-th smallest of the last axis, counted from 1. NumPy's selection is several times faster on a CPU."""
    if keys.device.type != "cpu":
        return keys.kthvalue(rank, dim=-1).values
    values = keys.numpy()
    values = np.partition(values, rank - 1, axis=-1)[..., rank - 1]
    return torch.from_numpy(np.ascontiguousarray(values))


def select_words(text: TokenRows, vocabulary: Vocabulary, *, ratio: float, purpose: Purpose) -> Tensor:
    """One whole-word mask per row, bool [B, L]. [UNK] spends quota but is not selected, as in RetroMAE's code."""
    words = find_words(text, vocabulary)
    selected = whole_word_masks(words, text.lengths_B, draw_seeds(text.keys_B, purpose), ratio=ratio)[:, 0]
    return selected if vocabulary.unk_id is None else selected & (text.ids_BL != vocabulary.unk_id)


def select_tokens(text: TokenRows, vocabulary: Vocabulary, *, ratio: float, purpose: Purpose) -> Tensor:
    """Each token but the specials with probability `ratio`, independently (BERT, run_mlm); bool, [B, L]."""
    chance = uniform(text.keys_B, purpose, text.ids_BL.shape[1])
    return find_words(text, vocabulary).candidate_BL & (chance < ratio)


def corrupt(text: TokenRows, selected_BL: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The ids with BERT's corruption of the selected: 80% [MASK], 10% any token of the vocabulary, 10% left; [B, L]."""
    length = text.ids_BL.shape[1]
    kind = uniform(text.keys_B, Purpose.CORRUPT, length)
    random_ids = integers(text.keys_B, Purpose.REPLACE, length, vocabulary.size)
    replaced = torch.where(kind < 0.8, vocabulary.mask_id, torch.where(kind < 0.9, random_ids, text.ids_BL))
    return torch.where(selected_BL, replaced, text.ids_BL)


@_one_thread()
def visibility(text: TokenRows, vocabulary: Vocabulary, *, ratio: float, independent: bool) -> Tensor:
    """Which context columns j each decoder row i may see (RetroMAE, Xiao et al. 2022, eq. 5); bool, [B, L, L].

    A row sees what its whole-word mask leaves, never itself. Column 0 (the sentence vector) is seen by every row but
    row 0, the last column ([SEP]) by every row but its own, padding by none. As published, min(length, 256) masks are
    drawn and each row picks one with replacement; `independent`: a fresh mask for each row.

    No row is blind, so no softmax is over nothing: rows of padding see what a real row would see (they are never read),
    and row 0 of a text of one token sees itself.
    """
    rows, length = text.ids_BL.shape
    words = find_words(text, vocabulary)
    draws = length if independent else min(length, POOL)
    pool = whole_word_masks(words, text.lengths_B, draw_seeds(text.keys_B, Purpose.DECODER, draws), ratio=ratio)
    real = torch.arange(length, device=pool.device) < text.lengths_B[:, None]
    visible = pool.logical_not_().logical_and_(real[:, None, :])
    if not independent:
        pick = integers(text.keys_B, Purpose.PICK, length, text.lengths_B.clamp(max=POOL)[:, None])
        first = torch.arange(rows, device=pool.device)[:, None] * draws
        visible = visible.view(rows * draws, length).index_select(0, (first + pick).flatten())
        visible = visible.view(rows, length, length)
    visible.diagonal(dim1=1, dim2=2).fill_(False)
    visible[:, 0, 0] = text.lengths_B <= 1
    return visible


def fingerprints(text: TokenRows) -> Tensor:
    """A 64-bit hash of each row's tokens, whatever its padding; equal rows have equal hashes; int64, [B]."""
    positions = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    seeds = draw_seeds(text.ids_BL.flatten(), Purpose.FINGERPRINT, 2).view(*text.ids_BL.shape, 2)
    bits = hashes(seeds, positions[None, :, None]).to(torch.int64)
    real = positions < text.lengths_B[:, None]
    low, high = (bits * real[..., None]).sum(1).unbind(-1)
    return (high << 32) ^ low
