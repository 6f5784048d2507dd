"""From plan rows to token ids: the rows of a training run, and how they are read from a tokens artifact.

An `Examples` is a small description that can be sent to any machine; `open_examples` turns it into a source there, once
in each process.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from midmask.arrays import Ints32
from midmask.artifact import Place
from midmask.randomness.texts import mix
from midmask.training.plan import Rows
from midmask.training.table import ColumnValues, TokenTable


class TextRows(NamedTuple):
    """Token rows end to end: flat int32 [sum of lengths]; lengths int32, rows (which text each row is) int64, [B];
    weights float32 [sum of lengths], each token's term weight, where asked for; scores float32 [B], a teacher's score
    of each text, where there is a teacher.
    """

    flat: Ints32
    lengths: Ints32
    rows: Rows
    weights: NDArray[np.float32] | None = None
    scores: NDArray[np.float32] | None = None

    def pieces(self) -> Iterator[Ints32]:
        """The rows one by one."""
        ends = np.cumsum(self.lengths)
        for end, length in zip(ends, self.lengths, strict=True):
            yield self.flat[end - length : end]


TextColumns = dict[str, TextRows]


class ExampleSource(Protocol):
    """An opened `Examples`. `lengths`, int32 [count], is there if batches are to be grouped by it."""

    count: int
    group: int
    lengths: Ints32 | None

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns: ...

    def names(self, rows: Rows) -> list[str]: ...


class Examples(Protocol):
    """A hashable, picklable description of a run's training data."""

    def __hash__(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def open(self) -> ExampleSource: ...


@lru_cache(maxsize=2)
def open_examples(examples: Examples) -> ExampleSource:
    """The source of a description, opened once a process."""
    return examples.open()


class Passages:
    """The passages of a tokens artifact by row, with their term weights where a `weights` artifact is given."""

    def __init__(self, tokens: Place, weights: Place | None, *, planned: int | None = None) -> None:
        self._ids = TokenTable(tokens / "passages", planned=planned)
        self._weights = TokenTable(weights / "weights", "weights", planned=planned) if weights else None
        self.count = self._ids.count
        self.names = self._ids.doc_ids

    def read(self, rows: Rows) -> TextRows:
        return join_texts(self._ids.read(rows), rows, self._weights.read(rows) if self._weights else None)


def lengths_of(tokens: Place) -> Ints32:
    """The tokens of each passage, int32."""
    with (tokens / "lengths.npy").reading() as stream:
        lengths: Ints32 = np.load(stream, allow_pickle=False)
    return lengths


@dataclass(frozen=True)
class PassageExamples:
    """Pre-training: a row is a passage of the tokens artifact.

    weights: an artifact of term weights. by_length: whether batches are grouped by length; not where the rows of a
    batch meet, since all negatives of a text would then be of its length.
    """

    tokens: Place
    fingerprint: str
    weights: Place | None = None
    by_length: bool = True

    def open(self) -> "PassageSource":
        return PassageSource(self)


class PassageSource:
    """Passages by row number."""

    group = 1

    def __init__(self, examples: PassageExamples) -> None:
        self.lengths: Ints32 | None = lengths_of(examples.tokens) if examples.by_length else None
        self._passages = Passages(examples.tokens, examples.weights)
        self.count = self._passages.count

    def read(self, rows: Rows, seed: int, epoch: int) -> TextColumns:
        return {"passage": self._passages.read(rows)}

    def names(self, rows: Rows) -> list[str]:
        return self._passages.names(rows)


def join_texts(pieces: list[Ints32], rows: Rows, weights: list[ColumnValues] | None = None) -> TextRows:
    """Rows end to end; `weights`: of their tokens, row by row."""
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int32)
    flat = np.concatenate(pieces).astype(np.int32, copy=False)
    weighed = None if weights is None else np.concatenate(weights).astype(np.float32, copy=False)
    if weighed is not None and len(weighed) != len(flat):
        raise ValueError(f"{len(weighed)} term weights for {len(flat)} tokens: they belong to other tokens")
    return TextRows(flat, lengths, rows, weighed)


def draw_rows(seed: int, epoch: int, rows: Rows, what: int, below: Any) -> Rows:
    """A number below `below` for each row, by hash of (seed, epoch, row, what it decides); int64 [B]."""
    keys = mix(mix(np.uint64(seed), np.uint64(epoch)), rows.astype(np.uint64))
    return np.asarray(mix(keys, np.uint64(what)) % np.asarray(below).astype(np.uint64)).astype(np.int64)
