"""Phrases: runs of whole words that neither begin nor end with a stop-word, and which of them two texts share (the
recurring spans of Ram et al. 2022).

Shapes: B rows, L tokens of a padded row, W words.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.batch import TokenRows
from midmask.masking.words import find_words
from midmask.vocabulary import Vocabulary

LEAST_WORDS, MOST_WORDS = 2, 10
"""Words of a phrase (Ram et al. 2022)."""

MULTIPLIER = 6364136223846793005
"""Odd: a phrase's hash is the sum of its ids times powers of this number, modulo 2**64."""


class Phrases(NamedTuple):
    """The phrases of so many words that begin at each token: their hashes and the places behind them, int64; which of
    them are phrases, bool; [B, L] each.
    """

    hashes_BL: Tensor
    ends_BL: Tensor
    valid_BL: Tensor


def phrases(text: TokenRows, vocabulary: Vocabulary, sizes: range, width: int) -> Iterator[Phrases]:
    """Phrases without a special token or [UNK], whose first and last word are no stop-words: for each number of whole
    words in `sizes`, ascending, those of so many.

    Args:
        width: at least the length of all rows whose hashes are compared.
    """
    length, device = text.ids_BL.shape[1], text.ids_BL.device
    places_L = torch.arange(length, device=device)
    found = find_words(text, vocabulary)
    begins_BL = (found.start_BL == places_L) & (places_L < text.lengths_B[:, None])
    plain_BL = found.candidate_BL & (text.ids_BL != (-1 if vocabulary.unk_id is None else vocabulary.unk_id))
    stops_BL = vocabulary.stop_V[text.ids_BL] & (found.size_BL == 1)
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
