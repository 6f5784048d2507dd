"""Small vocabularies and batches for tests of masks and objectives."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from midmask.core.batch import Batch, TokenRows
from midmask.masking.randomness import row_keys
from midmask.objectives.objective import teacher_width
from midmask.text.vocabulary import Vocabulary

PAD, UNK, CLS, SEP, MASK, FIRST = range(6)


def small_vocabulary(size: int = 60) -> Vocabulary:
    """Five specials, then tokens that begin words; the last third continues words. Tokens 6 to 15 are stop-words."""
    ids = torch.arange(size)
    special, stops = (ids < FIRST) & (ids != UNK), (ids > FIRST) & (ids <= FIRST + 10)
    return Vocabulary(size, PAD, CLS, SEP, MASK, UNK, ids >= size * 2 // 3, special, stops)


def sample_vocabulary(size: int = 30522, *, pad_id: int = 0) -> Vocabulary:
    """A vocabulary for made-up texts: the specials first, then whole words, the last fifth continuations."""
    ids = torch.arange(size)
    special_V = ((ids < 5) & (ids != 1)) | (ids == pad_id)
    return Vocabulary(size, pad_id, 2, 3, 4, 1, ids >= size * 4 // 5, special_V, (ids > 5) & (ids < 200))


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


TEXTS = [*random_texts([8, 4, 6]), [UNK, 9, UNK, 12]]


def batch(passages: list[list[int]], contexts: list[list[int]] | None = None) -> Batch:
    """Passages, or pairs, each text with a key of its own."""
    texts = {"passage": token_rows(passages)}
    if contexts is not None:
        texts["context"] = token_rows(contexts, keys=row_keys(7, 0, np.arange(100, 100 + len(contexts))))
    return Batch(0, texts)


def batch_for(config: Any, passages: list[int], contexts: list[int], size: int = 60) -> Batch:
    """What a config reads, in texts of these lengths: passages alone or pairs, of which two spans have four words in
    common, with weights and a teacher's vectors where they are asked for.
    """
    form = config.row_form()
    texts = random_texts(passages, size), random_texts(contexts, size, seed=1)
    for text in (*texts[0], *texts[1]) if form.rows == "spans" else ():
        text[:4] = range(16, 20) if len(text) >= 4 else text
    made = batch(texts[0], texts[1] if form.rows in ("spans", "pseudo_queries") else None)
    weigh = weighted if form.term_weights else lambda rows: rows
    weighed = replace(made, texts={name: weigh(rows) for name, rows in made.texts.items()})
    return weighed if form.teacher is None else replace(weighed, teacher=teacher_vectors(form.teacher, len(passages)))


def teacher_vectors(teacher: str, count: int) -> Tensor:
    """Random vectors of a teacher's width."""
    return torch.randn((count, teacher_width(teacher)), generator=torch.Generator().manual_seed(3))


def weighted(text: TokenRows) -> TokenRows:
    """The rows with random weights."""
    drawn = torch.rand(text.ids_BL.shape, generator=torch.Generator().manual_seed(1))
    return replace(text, weights_BL=drawn)
