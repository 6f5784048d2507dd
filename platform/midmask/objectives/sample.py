"""Made-up texts of given lengths, to run a step of any objective on: for counting and timing, not for training."""

from dataclasses import replace

import numpy as np
import torch

from midmask.core.batch import Batch, TokenRows
from midmask.core.torch_randomness import torch_stream
from midmask.masking.randomness import row_keys
from midmask.objectives.objective import ObjectiveConfig, teacher_width
from midmask.text.vocabulary import Vocabulary

CONTINUATIONS = 0.2
"""Share of tokens that continue a word, about that of English text under BERT's vocabulary."""
QUERY_LENGTH = 32
"""Tokens of a pseudo-query at most, specials included."""


def full_rows(rows: int, length: int, words: Vocabulary, *, seed: int) -> TokenRows:
    """Random texts of exactly `length` tokens, [CLS] and [SEP] included, each token with a random weight."""
    generator = torch_stream(seed)
    proper_V = ~words.special_V & (torch.arange(words.size) != words.unk_id)
    whole, continuing = (proper_V & ~words.continues_V).nonzero()[:, 0], (proper_V & words.continues_V).nonzero()[:, 0]
    ids = whole[torch.randint(len(whole), (rows, length), generator=generator)]
    pieces = continuing[torch.randint(len(continuing), (rows, length), generator=generator)] if len(continuing) else ids
    ids = torch.where(torch.rand((rows, length), generator=generator) < CONTINUATIONS, pieces, ids)
    ids[:, 0], ids[:, -1] = words.cls_id, words.sep_id
    weights = torch.rand((rows, length), generator=generator)
    return TokenRows(ids, torch.full((rows,), length), row_keys(seed, 0, np.arange(rows)), weights)


def pretraining_batch(config: ObjectiveConfig, words: Vocabulary, *, rows: int, length: int) -> Batch:
    """A batch for a middle training: passages, or each with a second span, a pseudo-query or a teacher's vector."""
    form = config.row_form()
    texts = {"passage": full_rows(rows, length, words, seed=1)}
    if form.rows in ("spans", "pseudo_queries"):
        second = length if form.rows == "spans" else min(length, QUERY_LENGTH)
        texts["context"] = full_rows(rows, second, words, seed=2)
    if not form.term_weights:
        texts = {name: replace(text, weights_BL=None) for name, text in texts.items()}
    if form.teacher is None:
        return Batch(0, texts)
    vectors = torch.randn((rows, teacher_width(form.teacher)), generator=torch_stream(3))
    return Batch(0, texts, teacher=vectors)


def finetuning_batch(words: Vocabulary, *, queries: int, group: int, query: int, passage: int) -> Batch:
    """A batch for a fine-tuning loss: queries, `group` passages for each, and a teacher's score of each pair.

    Args:
        query, passage: tokens of each.
    """
    texts = {
        "query": full_rows(queries, query, words, seed=1),
        "passage": full_rows(queries * group, passage, words, seed=2),
    }
    teacher_QG = torch.rand((queries, group), generator=torch_stream(3))
    return Batch(0, texts, group=group, teacher=teacher_QG)
