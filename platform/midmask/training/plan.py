"""Which rows are read at which step: a pure function of (corpus fingerprint, seed, epoch, step).

The order is shuffled on two levels, so that rows can be read from Parquet at any step without all that lies before:

    rows of the corpus   |0 … 2047|2048 … 4095| …              blocks = row groups, shuffled anew every epoch
    epoch order          |block 7|block 2|block 11| … |         cut into pools of about 32 blocks
    a pool               its rows shuffled; grouped by length on demand; cut into batches; the batches shuffled
    a step               one batch; worker r of n takes rows r, r + n, r + 2n, … so that lengths spread evenly

Rows that do not fill a last batch sit out the epoch; others do so in the next.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from midmask.core.config import fingerprint
from midmask.core.randomness import named_stream
from midmask.errors import UserError

BLOCK = 2048
"""Rows that are read together: a row group of a tokens artifact (`text.tokens.ROW_GROUP`, which imports torch)."""

POOL = 32 * BLOCK
"""Rows that are shuffled among each other: 65,536, of which a reader holds the decoded row groups."""

Rows = NDArray[np.int64]


@dataclass(eq=False)
class BatchPlan:
    """The batches of every epoch. Raises UserError if a batch is larger than the corpus."""

    count: int  # rows of the corpus
    batch_size: int  # rows a step, over all workers
    seed: int
    corpus: str  # the fingerprint of what is read
    lengths: NDArray[np.int32] | None = None  # tokens of each row, [count], to group batches by; None: not grouped

    def __post_init__(self) -> None:
        if self.batch_size > self.count:
            raise UserError(f"batch_size = {self.batch_size}: there are only {self.count} rows")
        self._pool = lru_cache(maxsize=2)(self._make_pool)  # thread-safe: a reader runs beside the loop

    @property
    def steps_per_epoch(self) -> int:
        return self.count // self.batch_size

    @property
    def left_out(self) -> int:
        """Rows that sit out an epoch."""
        return self.count % self.batch_size

    @property
    def fingerprint(self) -> str:
        return fingerprint([self.corpus, self.count, self.batch_size, self.seed, self.lengths is not None])

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def rows(self, step: int) -> Rows:
        """The global batch of a step, int64 [batch_size]: no row twice in an epoch."""
        epoch, place = divmod(step, self.steps_per_epoch)
        pool = int(np.searchsorted(self._pool_starts, place, side="right")) - 1
        begin = (place - int(self._pool_starts[pool])) * self.batch_size
        return self._pool(epoch, pool)[begin : begin + self.batch_size]

    def share(self, step: int, rank: int, size: int) -> Rows:
        """The rows of one of `size` workers."""
        return self.rows(step)[rank::size]

    @cached_property
    def _pool_starts(self) -> Rows:
        """First step of each pool, then the number of steps: pools of nearly equal size, whole batches each."""
        pools = max(1, -(-self.steps_per_epoch * self.batch_size // POOL))
        return np.arange(pools + 1, dtype=np.int64) * self.steps_per_epoch // pools

    def _make_pool(self, epoch: int, pool: int) -> Rows:
        """The rows of a pool in the order of its batches."""
        first, last = (int(step) * self.batch_size for step in self._pool_starts[pool : pool + 2])
        ends_corpus = pool == len(self._pool_starts) - 2
        rows = self._epoch_slice(epoch, first, self.count if ends_corpus else last)
        random = self._random(epoch, pool)
        rows = random.permutation(rows)[: last - first]
        if self.lengths is None:
            return rows
        by_length = rows[np.argsort(self.lengths[rows], kind="stable")]
        return random.permutation(by_length.reshape(-1, self.batch_size)).reshape(-1)

    def _epoch_slice(self, epoch: int, first: int, last: int) -> Rows:
        """Rows at places first … last - 1 of the epoch's order of blocks."""
        blocks = self._random(epoch, -1).permutation(-(-self.count // BLOCK))
        starts = blocks * BLOCK
        sizes = np.minimum(self.count - starts, BLOCK)
        ends = np.cumsum(sizes)
        places = np.arange(first, last, dtype=np.int64)
        block = np.searchsorted(ends, places, side="right")
        return np.asarray(starts[block] + places - (ends - sizes)[block], dtype=np.int64)

    def _random(self, epoch: int, pool: int) -> np.random.Generator:
        return named_stream(f"{self.corpus}/{self.seed}/{epoch}/{pool}")
