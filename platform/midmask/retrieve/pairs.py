"""Dense vectors of consecutive passages, and exact inner products of any pairs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

GATHERED = 4096
"""Vectors copied at once for exact scoring; few enough to stay in the cache."""


class Embeddings:
    """The vectors of N passages.

    Args:
        blocks: float32 [n, D], in row order; memory maps stay on disk.
    """

    def __init__(self, blocks: Sequence[Floats]) -> None:
        self._blocks = list(blocks)
        self._starts = np.cumsum([0, *map(len, blocks)])
        self.rows, self.width = int(self._starts[-1]), blocks[0].shape[1]

    def mean(self) -> Floats:
        """Their mean, rounded to float32: [D]."""
        total_D = sum(block.sum(axis=0, dtype=np.float64) for block in self._blocks)
        return np.asarray(total_D / self.rows, dtype=np.float32)

    def less(self, point_D: Floats) -> Floats:
        """A copy of all, moved by a point: float32 [N, D]."""
        moved_ND = np.empty((self.rows, self.width), dtype=np.float32)
        for start, block in zip(self._starts[:-1], self._blocks, strict=True):
            np.subtract(block, point_D, out=moved_ND[start : start + len(block)])
        return moved_ND

    def inner(self, query_D: NDArray[np.float64], rows_N: Ints) -> Doubles:
        """Inner products of a query with some rows, in float64: one dot product a pair, the same in any company."""
        scores_N = np.empty(len(rows_N), dtype=np.float64)
        for at in range(0, len(rows_N), GATHERED):
            scores_N[at : at + GATHERED] = np.vecdot(self.take(rows_N[at : at + GATHERED]), query_D)
        return scores_N

    def take(self, rows_N: Ints) -> Doubles:
        """Some rows, [N, D]."""
        if len(self._blocks) == 1:
            return self._blocks[0].take(rows_N, axis=0).astype(np.float64)
        vectors_ND = np.empty((len(rows_N), self.width), dtype=np.float64)
        block_N = np.searchsorted(self._starts, rows_N, side="right") - 1
        for block in np.unique(block_N):
            mine_N = block_N == block
            vectors_ND[mine_N] = self._blocks[block][rows_N[mine_N] - self._starts[block]]
        return vectors_ND
