"""The best k passages of a query, by float32 score descending, then document id."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.core.arrays import Floats, Ints
from midmask.retrieve.views import Views

Neighbours = tuple[Floats, Ints]
"""Scores and rows [Q, K], the best first; -inf and -1 where fewer than K were found."""

Candidates = Sequence[Ints]
"""For each query the rows of the passages that are scored, ascending."""


class Shard(ABC):
    """The passages `first` .. `first + rows` of a corpus, searchable.

    Args:
        doc_ids: their ids; equal scores rank by them.
        first: the corpus row of the first passage.
        threads: threads of a search, set explicitly since Ray sets OMP_NUM_THREADS; they change no number of an exact
            search.
    """

    def __init__(self, doc_ids: pa.ChunkedArray, first: int, threads: int) -> None:
        self.doc_ids = doc_ids
        self.rows = len(doc_ids)
        self._first = first
        self._threads = threads
        self._places_N = places_of(doc_ids)

    def search(self, queries: Views, k: int, candidates: Candidates | None = None) -> Neighbours:
        """The best min(k, rows) passages of each query: scores float32 and corpus rows int64, both [Q, min(k, rows)].

        Ordered by score descending, then document id ascending.

        Args:
            candidates: rows of the shard (0 .. rows - 1) that token vectors are compared with. None: all passages are
                scored, as by other views.

        Raises:
            ValueError: if the queries lack a view of the passages.
        """
        scores_QK, rows_QK = self._search(queries, min(k, self.rows), candidates)
        return scores_QK, np.where(rows_QK < 0, -1, rows_QK + self._first)

    @abstractmethod
    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        """As `search`, with k <= rows, and rows counted from the shard's first passage."""


def places_of(doc_ids: pa.ChunkedArray) -> Ints:
    """The position of each id in the sorted list of ids; equal scores are ordered by it."""
    return np.asarray(pc.rank(doc_ids, tiebreaker="first").to_numpy()).astype(np.int64) - 1


def in_order(scores_QN: Floats, rows_QN: Ints, places_N: Ints, k: int) -> tuple[Floats, Ints]:
    """The best k of each query, in order: scores and rows [Q, k]; -inf and -1, last, where fewer are there.

    Args:
        scores_QN: finite, or -inf where there is no passage.
        rows_QN: what was found, in any order; -1 where there is no passage.
        places_N: for every row, what equal scores are compared by.
    """
    # One integer a pair, sorted several times faster than two keys: the bits of floats, but for the sign those of
    # negative ones inverted, compare as the floats do. Adding 0 makes a 0.0 of -0.0.
    bits_QN = (scores_QN + np.float32(0)).view(np.int32)
    rising_QN = np.where(bits_QN < 0, bits_QN ^ 0x7FFFFFFF, bits_QN).astype(np.int64)
    keys_QN = (-rising_QN << 32) | places_N[rows_QN]
    if keys_QN.shape[1] > 2 * k:
        few = np.argpartition(keys_QN, k, axis=1)[:, :k]
        at_QK = np.take_along_axis(few, np.argsort(np.take_along_axis(keys_QN, few, axis=1), axis=1), axis=1)
    else:
        at_QK = np.argsort(keys_QN, axis=1)[:, :k]
    scores_QK: Floats = np.take_along_axis(scores_QN, at_QK, axis=1)
    return scores_QK, np.where(np.isneginf(scores_QK), -1, np.take_along_axis(rows_QN, at_QK, axis=1))


def near_best(scores_N: NDArray[np.floating], error: float, k: int, least: np.float32) -> Ints:
    """Places that may be among the best k, given that the k-th best reaches `least`: no score is wrong by more than
    `error`."""
    most = np.nextafter(np.float32(error), np.float32(np.inf)) if error else np.float32(0)
    low_N = (scores_N - most).astype(np.float32)
    high_N = (scores_N + most).astype(np.float32) if error else low_N
    if np.isneginf(least) and k < len(low_N):
        least = _kth(low_N, k)
    return np.flatnonzero(high_N >= least)


def _kth(scores_N: Floats, k: int) -> np.float32:
    # Negated, since numpy finds the k-th smallest of many several times faster than the k-th largest.
    return np.float32(-np.partition(-scores_N, k - 1)[k - 1])


class Best:
    """The best k passages so far of each of some queries; threads may each add to queries of their own.

    Args:
        k: at least 1.
        places_N: for every row, what equal scores are compared by.
    """

    def __init__(self, queries: int, k: int, places_N: Ints) -> None:
        self._k, self._places_N = k, places_N
        self._scores_QK = np.full((queries, k), -np.inf, dtype=np.float32)  # unordered
        self._rows_QK = np.full((queries, k), -1, dtype=np.int64)
        self._least_Q = np.full(queries, -np.inf, dtype=np.float32)

    def least(self, query: int) -> np.float32:
        """The score that a passage must reach to be taken in; -inf while there is room."""
        return np.float32(self._least_Q[query])

    def offer(self, query: int, scores_N: Floats, rows_N: Ints) -> None:
        """Adds scored passages, each at most once over all calls."""
        scores_N, rows_N = np.append(self._scores_QK[query], scores_N), np.append(self._rows_QK[query], rows_N)
        least = _kth(scores_N, self._k)
        near = np.flatnonzero(scores_N >= least)
        scores_N, rows_N = scores_N[near], rows_N[near]
        if len(near) > self._k:  # equal scores at the cut
            (scores_N,), (rows_N,) = in_order(scores_N[None], rows_N[None], self._places_N, self._k)
        self._scores_QK[query], self._rows_QK[query], self._least_Q[query] = scores_N, rows_N, least

    def ranking(self) -> Neighbours:
        """Scores and rows [Q, k], the best first."""
        return in_order(self._scores_QK, self._rows_QK, self._places_N, self._k)
