"""Dense vectors of consecutive passages: exact inner products of any pairs, and how wrong float32 ones can be.

Guesses are made with the vectors less their mean: that moves all scores of a query by one constant, and makes the error
small, since the vectors of a young encoder are nearly one vector.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from midmask.arrays import Doubles, Floats, Ints
from midmask.errors import UserError

GATHERED = 512
"""Vectors copied at once for exact scoring; few enough to stay in the cache."""


class Embeddings:
    """The vectors of N passages.

    Args:
        blocks: float32 [n, D], in row order; memory maps stay on disk.

    Raises:
        UserError: naming the row, if a vector holds NaN or an infinite number.
    """

    def __init__(self, blocks: Sequence[Floats]) -> None:
        self._blocks = [np.asarray(block) for block in blocks]  # a memory map's own class is slow to take rows of
        self._starts = np.cumsum([0, *map(len, blocks)])
        self.rows, self.width = int(self._starts[-1]), blocks[0].shape[1]
        # numpy sorts integers of 16 bits by counting, which holds up to 65,536 blocks.
        self._block_of_N = np.repeat(np.arange(len(blocks), dtype=np.min_scalar_type(len(blocks))), [*map(len, blocks)])
        for start, block in zip(self._starts.tolist(), self._blocks, strict=False):
            check_finite(block, start)

    def mean(self) -> Floats:
        """Their mean, rounded to float32: [D]."""
        total_D = sum(block.sum(axis=0, dtype=np.float64) for block in self._blocks)
        return np.asarray(total_D / self.rows, dtype=np.float32)

    def less(self, point_D: Floats) -> Iterator[Floats]:
        """Copies of the blocks, moved by a point."""
        return (np.ascontiguousarray(block - point_D) for block in self._blocks)

    def inner(self, queries_QD: Doubles, rows_QN: Ints) -> Doubles:
        """Inner products of each query with rows of its own, in float64, [Q, N].

        Each is one dot product of length D, the same in any company. Pairs are met block by block, so that a block that
        lies on disk is read once.
        """
        rows, scores = rows_QN.reshape(-1), np.empty(rows_QN.size, dtype=np.float64)
        blocks = self._block_of_N[rows]
        by_block = blocks.argsort(kind="stable")
        edges = np.searchsorted(blocks[by_block], np.arange(len(self._blocks) + 1)).tolist()
        for block, first, start, stop in zip(self._blocks, self._starts.tolist(), edges, edges[1:], strict=False):
            for at in range(start, stop, GATHERED):
                pairs = by_block[at : min(at + GATHERED, stop)]
                vectors_PD = block.take(rows[pairs] - first, axis=0).astype(np.float64)
                scores[pairs] = np.vecdot(vectors_PD, queries_QD.take(pairs // rows_QN.shape[1], axis=0))
        return scores.reshape(rows_QN.shape)


def check_finite(vectors_ND: Floats, first: int = 0) -> None:
    """Raises UserError, naming the row, if a vector holds NaN or an infinite number; the first is row `first`."""
    finite_N = np.isfinite(vectors_ND).all(axis=1)
    if not finite_N.all():
        raise UserError(
            f"dense vectors, row {first + int(finite_N.argmin())}: it holds NaN or an infinite number; the encoder "
            "that made it is broken, look at the losses of its training"
        )


def longest_of(vectors_ND: Floats) -> float:
    """The largest length."""
    return float(np.linalg.norm(vectors_ND.astype(np.float64), axis=-1).max(initial=0))


def error_of_guess(longest: float, mean_D: Floats) -> float:
    """How far a guess, plus the mean's share, may lie from the score, for a query of length 1.

    Higham 2002, (3.5): |fl(x·y) - x·y| <= D u / (1 - D u) · |x|·|y| for any order of summation, u = 2^-24; one more u
    for rounding the centred vector, and a little for the sums in float64.
    """
    unit = (len(mean_D) + 1) * 2.0**-24
    return longest * unit / (1 - unit) + 2.0**-40 * float(np.linalg.norm(mean_D))
