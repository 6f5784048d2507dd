"""Corrupted inputs: crops of texts, the tokens to predict and what replaces them, the context a decoder row may see.

Shapes: B rows, L tokens of a padded row.
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from midmask.core.batch import TokenRows
from midmask.masking.randomness import Purpose, draw_seeds, integers, uniform
from midmask.masking.words import find_words, one_thread, whole_word_masks
from midmask.text.vocabulary import Vocabulary


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
    quota_B = (share.ceil() if round_up else share.round()).clamp(min=1)
    order = score.masked_fill(~candidate, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    return candidate & (rank < quota_B[:, None])


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
