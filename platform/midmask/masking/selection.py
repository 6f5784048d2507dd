"""Selects the tokens to predict, and the tokens that replace them.

Shapes: B rows, L tokens of a padded row.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.masking.words import find_words, whole_word_masks
from midmask.randomness.masks import Purpose, draw_seeds, integers, uniform
from midmask.vocabulary import Vocabulary

Unknown = Literal["spent", "skipped", "masked"]
"""What [UNK] does: it spends quota but is never selected (RetroMAE, CoT-MAE, SimLM); it is passed over (Condenser); it
is a token like any other (BERT, LexMAE)."""


def select_words(
    text: TokenRows,
    vocabulary: Vocabulary,
    *,
    ratio: float,
    purpose: Purpose,
    count_specials: bool = True,
    unknown: Unknown = "spent",
) -> Tensor:
    """One whole-word mask per row, bool [B, L].

    Args:
        count_specials: whether [CLS] and [SEP] count in the length that the quota is a share of (RetroMAE: yes;
            Condenser, CoT-MAE: no). [UNK] always does.
    """
    words = find_words(text, vocabulary)
    counted_B = text.lengths_B if count_specials else words.candidate_BL.sum(1)
    is_unknown = text.ids_BL == (-1 if vocabulary.unk_id is None else vocabulary.unk_id)
    if unknown == "skipped":
        words = replace(words, candidate_BL=words.candidate_BL & ~is_unknown)
    seeds = draw_seeds(text.keys_B, purpose)
    selected = whole_word_masks(words, counted_B, seeds, ratio=ratio)[:, 0]
    return selected & ~is_unknown if unknown == "spent" else selected


def select_tokens(text: TokenRows, vocabulary: Vocabulary, *, ratio: float, purpose: Purpose) -> Tensor:
    """Each token but the specials with probability `ratio`, independently; bool, [B, L].

    As in BERT's code, and in run_mlm but for [UNK], which the latter never selects.
    """
    chance = uniform(text.keys_B, purpose, text.ids_BL.shape[1])
    return find_words(text, vocabulary).candidate_BL & (chance < ratio)


def select_highest(
    text: TokenRows,
    vocabulary: Vocabulary,
    *,
    ratio: float,
    purpose: Purpose,
    temperature: float = 1.0,
    round_up: bool = False,
) -> Tensor:
    """Exactly k tokens a row, those of highest temperature * uniform + term weight (ROM, Long et al. 2022); bool, [B,
    L].

    k is `ratio` of the row's tokens without specials, to the nearest whole number, at least 1 (`round_up`: upwards).
    Without term weights it is a uniform k-subset; with temperature 0 the k heaviest, the earlier where weights tie.
    """
    candidate = find_words(text, vocabulary).candidate_BL
    chance = uniform(text.keys_B, purpose, text.ids_BL.shape[1]).double()
    score = chance if text.weights_BL is None else temperature * chance + text.weights_BL
    share = candidate.sum(1).double() * ratio
    wanted = (share.ceil() if round_up else share.round()).clamp(min=1)
    order = score.masked_fill(~candidate, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    return candidate & (rank < wanted[:, None])


def corrupt(text: TokenRows, selected_BL: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The ids with BERT's corruption of the selected: 80% [MASK], 10% any token of the vocabulary, 10% left; [B, L]."""
    length = text.ids_BL.shape[1]
    kind = uniform(text.keys_B, Purpose.CORRUPT, length)
    random_ids = integers(text.keys_B, Purpose.REPLACE, length, vocabulary.size)
    replaced = torch.where(kind < 0.8, vocabulary.mask_id, torch.where(kind < 0.9, random_ids, text.ids_BL))
    return keep_pairs(text.ids_BL, torch.where(selected_BL, replaced, text.ids_BL), vocabulary)


def keep_pairs(ids_BL: Tensor, replaced_BL: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The rows `replaced_BL` of texts `ids_BL`; where rows are pairs, a token that was replaced by [SEP] is itself
    again, since the first [SEP] ends the title.
    """
    if vocabulary.pair_sep is None:
        return replaced_BL
    return torch.where(replaced_BL == vocabulary.pair_sep, ids_BL, replaced_BL)
