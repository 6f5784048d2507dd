"""Passages of which each visit reads an excerpt: so many tokens in a row, which begin anywhere, all places alike.

    passage          [CLS] a b c d e f g [SEP]
    excerpt of 5     [CLS] c d e [SEP]              another at the next visit

As the published code of query-as-context, bag of words and Condenser reads texts that are longer than a row. Which
tokens are read depends on (seed, epoch, row) alone.
"""

from dataclasses import dataclass

import numpy as np

from midmask.arrays import Ints32
from midmask.training.contexts import EXCERPT, PseudoQueryExamples
from midmask.training.examples import ExampleSource, PassageExamples, TextColumns, TextRows, draw_rows
from midmask.training.plan import Rows


@dataclass(frozen=True)
class ExcerptExamples:
    """Pre-training: the rows of `whole`, of whose passages at most `length` tokens are read, [CLS] and [SEP] among
    them.
    """

    whole: PassageExamples | PseudoQueryExamples
    length: int

    @property
    def fingerprint(self) -> str:
        return self.whole.fingerprint

    def open(self) -> "ExcerptSource":
        return ExcerptSource(self.whole.open(), self.length)


class ExcerptSource:
    """The rows of another source, with excerpts of their passages."""

    group = 1

    def __init__(self, whole: ExampleSource, length: int) -> None:
        self._whole, self._length = whole, length
        self.count = whole.count
        self.lengths: Ints32 | None = None if whole.lengths is None else np.minimum(whole.lengths, length)
        self.names = whole.names

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        columns = self._whole.read(rows, seed, epoch)
        whole = columns["passage"]
        starts = draw_rows(seed, epoch, rows, EXCERPT, np.maximum(whole.lengths - self._length, 0) + 1)
        return {**columns, "passage": cut_excerpts(whole, starts, self._length)}


def cut_excerpts(whole: TextRows, starts: Rows, length: int) -> TextRows:
    """Of each row its first and its last token, and between them the `length` - 2 tokens after `starts` skipped ones.

    Args:
        starts: int64 [B], tokens after [CLS] that are skipped; 0 for a row of at most `length` tokens, which is whole.
    """
    ends = np.cumsum(whole.lengths, dtype=np.int64)
    lengths = np.minimum(whole.lengths, length)
    first = np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, lengths)
    place = np.arange(int(lengths.sum())) - first  # in its excerpt
    row = np.repeat(np.arange(len(lengths)), lengths)
    kept = (ends - whole.lengths)[row] + place + np.where(place > 0, starts[row], 0)
    kept = np.where(place == lengths[row] - 1, ends[row] - 1, kept)
    weights = None if whole.weights is None else whole.weights[kept]
    return whole._replace(flat=whole.flat[kept], lengths=lengths, weights=weights)
