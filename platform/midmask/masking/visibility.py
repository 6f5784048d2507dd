"""Which context a decoder row may see.

Shapes: B rows, L tokens of a padded row.
"""

import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.masking.words import find_words, one_thread, whole_word_masks
from midmask.randomness.masks import Purpose, draw_seeds, integers
from midmask.vocabulary import Vocabulary

POOL = 256
"""Most masks that RetroMAE draws for one row before its positions choose among them."""


@one_thread()
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
