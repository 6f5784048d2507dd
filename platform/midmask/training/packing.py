"""Rows of one length: passages end to end, cut without regard to where they begin, as `run_mlm` does by default.

    passages, specials included    |[CLS] a b [SEP]|[CLS] c [SEP]|[CLS] d e f [SEP]| …   in groups of 1000
    rows of 4 tokens               |[CLS] a b [SEP]|[CLS] c [SEP] [CLS]|d e f [SEP]| …   a group's rest is dropped

Where a row lies follows from the passages' lengths alone, so nothing has to be stored, and any row can be read.
"""

from dataclasses import dataclass

import numpy as np

from midmask.arrays import Ints32
from midmask.artifact import Place
from midmask.errors import UserError
from midmask.training.examples import Passages, TextColumns, TextRows, lengths_of
from midmask.training.plan import Rows

GROUP = 1000
"""Passages that are put end to end (the default batch of Hugging Face's datasets, which run_mlm.py leaves as it is)."""


@dataclass(frozen=True)
class PackedExamples:
    """Pre-training: a row is exactly `length` tokens of passages end to end."""

    tokens: Place
    fingerprint: str
    length: int
    weights: Place | None = None

    def open(self) -> "PackedSource":
        return PackedSource(self)


class PackedSource:
    """Packed rows by number. `dropped`: tokens that fill no row."""

    group = 1
    lengths: Ints32 | None = None

    def __init__(self, examples: PackedExamples) -> None:
        self._length = examples.length
        self._ends = np.cumsum(lengths_of(examples.tokens), dtype=np.int64)
        bounds = np.append(np.arange(0, len(self._ends), GROUP), len(self._ends))
        self._group_starts = np.concatenate([[0], self._ends])[bounds]
        rows = np.diff(self._group_starts) // self._length
        self._first_rows = np.concatenate([[0], np.cumsum(rows)])
        self.count = int(self._first_rows[-1])
        self.dropped = int(self._ends[-1]) - self.count * self._length
        if not self.count:
            raise UserError(
                f"tokens.max_length = {self._length}: {self._ends[-1]} tokens do not fill one packed row; set "
                "objective.packing=false or a smaller tokens.max_length"
            )
        self._passages = Passages(examples.tokens, examples.weights, planned=self.count)

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        starts = self._start(rows)
        first = np.searchsorted(self._ends, starts, side="right")
        last = np.searchsorted(self._ends, starts + self._length - 1, side="right")
        read = self._passages.read(np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]))
        begins = np.concatenate([[0], np.cumsum(read.lengths, dtype=np.int64)])
        places = np.concatenate([[0], np.cumsum(last - first + 1)])[:-1]
        before = starts - np.concatenate([[0], self._ends])[first]
        kept = ((begins[places] + before)[:, None] + np.arange(self._length)).reshape(-1)
        lengths = np.full(len(rows), self._length, dtype=np.int32)
        weights = None if read.weights is None else read.weights[kept]
        return {"passage": TextRows(read.flat[kept], lengths, rows, weights)}

    def _start(self, rows: Rows) -> Rows:
        """The place of each row's first token among all tokens."""
        group = np.searchsorted(self._first_rows, rows, side="right") - 1
        return np.asarray(self._group_starts[group] + (rows - self._first_rows[group]) * self._length)

    def names(self, rows: Rows) -> list[str]:
        """The passages in which the rows begin."""
        return self._passages.names(np.searchsorted(self._ends, self._start(rows), side="right"))
