"""Words of a token row, the published whole-word sampler, and phrases that two texts share; no loop over tokens.

Phrases are runs of whole words that neither begin nor end with a stop-word (the recurring spans of Ram et al. 2022).

Shapes: B rows, L tokens of a padded row, K masks drawn for one row, W words.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.batch import TokenRows
from midmask.masking.randomness import hashes
from midmask.text.vocabulary import Vocabulary

QUOTA_LIMIT = 512
"""Most tokens that whole-word masking selects in one row; a constant of every published sampler."""

LOWEST, HIGHEST = -(2**31), 2**31 - 1
POSITION_BITS = 13
"""Low bits of a word's key that hold its position, so that no two words of a row tie. 2**13 is the longest row there
is."""

CACHED, ON_DEVICE = 2**17, 2**25
"""Keys that are worked on at a time, on a CPU and on a GPU. On a CPU they and their scratch stay in the second-level
cache."""


@dataclass(frozen=True)
class WordSpans:
    """The words of a batch of token rows, as facts about each token."""

    start_BL: Tensor  # position of the first token of the token's word, int32
    size_BL: Tensor  # number of tokens of that word, int32
    candidate_BL: Tensor  # true at real tokens that are not special; [UNK] is a candidate


def find_words(text: TokenRows, vocabulary: Vocabulary) -> WordSpans:
    """The words of each row: a token and the continuations right after it; a special token ends a word."""
    positions_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    candidate = (positions_L < text.lengths_B[:, None]) & ~vocabulary.special_V[text.ids_BL]
    joined = candidate & vocabulary.continues_V[text.ids_BL]
    joined[:, 0] = False
    joined[:, 1:] &= candidate[:, :-1]
    start = torch.where(joined, 0, positions_L).cummax(1).values
    size = torch.zeros_like(start).scatter_add_(1, start, torch.ones_like(start)).gather(1, start)
    return WordSpans(start.to(torch.int32), size.to(torch.int32), candidate)


def quota(lengths: Tensor, ratio: float) -> Tensor:
    """Number of tokens to select in rows of these lengths: round half to even, at least 1, at most 512; int64."""
    return (lengths.to(torch.float64) * ratio).round().clamp(1, QUOTA_LIMIT).to(torch.int64)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps torch on the calling thread. These are thousands of operations of some microseconds: where cores are busy,
    waiting for a second thread at the end of each costs a hundred times what it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def whole_word_masks(words: WordSpans, lengths_B: Tensor, seeds_BK: Tensor, *, ratio: float) -> Tensor:
    """K whole-word masks per row, with exactly the law of the published sampler; bool, [B, K, L].

    Published (the whole-word collator that RetroMAE, Condenser and CoT-MAE share): walk over the words in random order,
    take a word if the row's quota allows all of it, else skip it. Here each word has a random key and the order is that
    of the keys. All words up to the one that meets the quota are found by selection instead of sorting; only rows where
    that word does not fit exactly go on, to the next words that do.

    Args:
        lengths_B: tokens of each row that the quota is a share of, at least its candidates and at most L.
        ratio: share of them to hide, in (0, 1).
    """
    rows, length = words.start_BL.shape
    draws = seeds_BK.shape[1]
    # One rank serves all rows: where a row's quota is lower, as many of its non-candidates get the lowest key.
    rank = int(quota(torch.tensor([length]), ratio))
    filled = (~words.candidate_BL).cumsum(1) <= (rank - quota(lengths_B, ratio))[:, None]
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


LEAST_WORDS, MOST_WORDS = 2, 10
"""Words of a phrase (Ram et al. 2022)."""

MULTIPLIER = 6364136223846793005
"""Odd: a phrase's hash is the sum of its ids times powers of this number, modulo 2**64."""


class Phrases(NamedTuple):
    """The phrases of a fixed number of words that begin at each token, [B, L]."""

    hashes_BL: Tensor  # int64
    ends_BL: Tensor  # position behind the phrase's last token, int64
    valid_BL: Tensor  # whether a phrase begins at the token, bool


def phrases(text: TokenRows, vocabulary: Vocabulary, sizes: range, width: int) -> Iterator[Phrases]:
    """Phrases without a special token or [UNK], whose first and last word are no stop-words: for each number of whole
    words in `sizes`, ascending, those of so many.

    Args:
        width: at least the length of all rows whose hashes are compared.
    """
    length, device = text.ids_BL.shape[1], text.ids_BL.device
    places_L = torch.arange(length, device=device)
    whole_words = find_words(text, vocabulary)
    begins_BL = (whole_words.start_BL == places_L) & (places_L < text.lengths_B[:, None])
    plain_BL = whole_words.candidate_BL & (text.ids_BL != (-1 if vocabulary.unk_id is None else vocabulary.unk_id))
    stops_BL = vocabulary.stop_V[text.ids_BL] & (whole_words.size_BL == 1)
    edge_BL = F.pad(begins_BL & plain_BL & ~stops_BL, (0, 1))
    begins_BW = F.pad(torch.where(begins_BL, places_L, length).sort(1).values, (0, sizes[-1]), value=length)
    number_BL = begins_BL.cumsum(1) - 1
    breaks_BL = F.pad((~plain_BL).cumsum(1), (1, 0))
    powers = torch.full((width,), MULTIPLIER, device=device).cumprod(0)
    sums_BL = F.pad((text.ids_BL * powers[:length]).cumsum(1), (1, 0))
    for words in sizes:
        last_BL, ends_BL = (begins_BW.gather(1, number_BL + ahead) for ahead in (words - 1, words))
        unbroken_BL = breaks_BL.gather(1, ends_BL) == breaks_BL[:, :-1]
        hashes_BL = (sums_BL.gather(1, ends_BL) - sums_BL[:, :-1]) * powers.flip(0)[:length]
        whole_BL = edge_BL[:, :-1] & edge_BL.gather(1, last_BL) & unbroken_BL & (ends_BL < length)
        yield Phrases(hashes_BL, ends_BL, whole_BL)


def recurring(text: TokenRows, other: TokenRows, vocabulary: Vocabulary, shortest: int, longest: int) -> Tensor:
    """Where the longest phrase ends that begins at a token and is in the other row too; 0 where none does, or where it
    is in a longer one; int64, [B, L].
    """
    width = max(text.ids_BL.shape[1], other.ids_BL.shape[1])
    ends_BL = torch.zeros_like(text.ids_BL)
    sizes = range(shortest, longest + 1)
    for here, there in zip(*(phrases(rows, vocabulary, sizes, width) for rows in (text, other)), strict=True):
        equal_BLL = (here.hashes_BL[:, :, None] == there.hashes_BL[:, None]) & there.valid_BL[:, None]
        ends_BL = torch.where(here.valid_BL & equal_BLL.any(2), here.ends_BL, ends_BL)
    before_BL = F.pad(ends_BL.cummax(1).values[:, :-1], (1, 0))
    return ends_BL * (ends_BL > before_BL)
