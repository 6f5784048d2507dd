"""Small vocabularies and batches for tests of masks and objectives."""

import numpy as np
import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.randomness.masks import row_keys
from midmask.vocabulary import Vocabulary

PAD, UNK, CLS, SEP, MASK, FIRST = range(6)


def small_vocabulary(size: int = 60) -> Vocabulary:
    """Five specials, then tokens that begin words; the last third continues words. Tokens 6 to 15 are stop-words."""
    ids = torch.arange(size)
    special = (ids < FIRST) & (ids != UNK)
    return Vocabulary(
        size, PAD, CLS, SEP, MASK, UNK, ids >= size * 2 // 3, special, (ids > FIRST) & (ids <= FIRST + 10)
    )


def token_rows(texts: list[list[int]], *, length: int | None = None, keys: Tensor | None = None) -> TokenRows:
    """Texts without specials, as padded rows with them; keys are those of rows 0, 1, … unless given."""
    full = [[CLS, *text, SEP] for text in texts]
    width = length or max(len(row) for row in full)
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in full])
    lengths = torch.tensor([len(row) for row in full])
    return TokenRows(ids, lengths, row_keys(7, 0, np.arange(len(full))) if keys is None else keys)


def random_texts(lengths: list[int], size: int = 60, *, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(FIRST, size, (length,), generator=generator).tolist() for length in lengths]
