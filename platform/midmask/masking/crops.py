"""Crops of texts: runs of words, and texts with some tokens removed.

Shapes: B rows, L tokens of a padded row.
"""

import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.masking.words import find_words
from midmask.randomness.masks import Purpose, uniform
from midmask.vocabulary import Vocabulary


def word_runs(text: TokenRows, vocabulary: Vocabulary, *, shortest: float, longest: float) -> Tensor:
    """One run of whole words per row, special tokens apart; bool, [B, L].

    Its share of the row's words is uniform in [shortest, longest], rounded down but for the first word; of all places
    where so long a run fits, each is as likely. A row without words has an empty run.
    """
    words = find_words(text, vocabulary)
    positions_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    begins_BL = words.candidate_BL & (words.start_BL == positions_L)
    count_B = begins_BL.sum(1)
    share_B, place_B = uniform(text.keys_B, Purpose.CROP, 2).double().unbind(1)
    size_B = ((shortest + (longest - shortest) * share_B) * count_B).long().clamp(min=1)
    first_B = (place_B * (count_B - size_B + 1)).long()
    number_BL = begins_BL.cumsum(1) - 1
    inside_BL = (number_BL >= first_B[:, None]) & (number_BL < (first_B + size_B)[:, None])
    return words.candidate_BL & inside_BL


def only(text: TokenRows, kept_BL: Tensor, vocabulary: Vocabulary) -> TokenRows:
    """The rows with the tokens of `kept_BL` and their special tokens alone, moved together; keys as they were."""
    candidate_BL = find_words(text, vocabulary).candidate_BL
    real_BL = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device) < text.lengths_B[:, None]
    kept_BL = real_BL & (kept_BL | ~candidate_BL)
    lengths_B = kept_BL.sum(1)
    order_BL = (~kept_BL).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(lengths_B.max())]
    ids_BL = text.ids_BL.gather(1, order_BL)
    padding_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device) >= lengths_B[:, None]
    weights_BL = None if text.weights_BL is None else text.weights_BL.gather(1, order_BL)
    return TokenRows(ids_BL.masked_fill(padding_BL, vocabulary.pad_id), lengths_B, text.keys_B, weights_BL)
