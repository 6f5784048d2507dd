"""A vocabulary without strings, for made-up texts."""

import torch

from midmask.text.vocabulary import Vocabulary


def sample_vocabulary(size: int = 30522, *, pad_id: int = 0) -> Vocabulary:
    """A vocabulary without strings: the specials first, then whole words, the last fifth continuations."""
    ids = torch.arange(size)
    special_V = ((ids < 5) & (ids != 1)) | (ids == pad_id)
    return Vocabulary(size, pad_id, 2, 3, 4, 1, ids >= size * 4 // 5, special_V, (ids > 5) & (ids < 200))
