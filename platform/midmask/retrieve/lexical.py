"""Search over one shard by words, or by words and dense vectors together; float64 decides, in one order of summing.

The score of a pair is the sum over terms, ascending, of query weight times passage weight. Products of float32 are
exact in float64 and the order of the sum is fixed, so a score does not know of shards, blocks or threads: the inverted
list of each term of a query is added to the scores of a block of passages.

Held for each entry: 12 bytes of the lists; for a search, about 100 MB beside its result, whatever the number of
passages. Weights and scores may be negative. A passage that shares no term with the query scores 0 and takes its place
in the ranking like any other.

Hybrid: the dense inner product in float64 is added to the lexical sum before the cut, and the result rounded once to
float32. A passage may be among the best without being among the best of either part, so two ranked lists cannot be
merged. Every passage has its exact lexical score plus a float32 dense score of known error; all that may be among the
best by that error are scored exactly, so the result is proven. Held besides: a float32 copy of the vectors less their
mean, and 64 MB of dense scores during a search.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.core.arrays import Doubles, Floats
from midmask.retrieve.best import Best, Candidates, Neighbours, Shard, near_best
from midmask.retrieve.dense import Embeddings
from midmask.retrieve.sparse import row_of
from midmask.retrieve.views import Views

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

PASSAGES = 65_536
"""Passages of a block: their scores for one query stay in a core's cache."""

MANY_TERMS = 4096
"""Terms of a query from which a block's lists are added in one go, those of other terms times 0; the sums are the same.
"""

QUERIES = 256
"""Queries searched at once, over all threads: bounds what is held of results in the making."""


class LexicalShard(Shard):
    """Passages that are searched by their lexical views, or by these and their dense views at once.

    Args:
        rows: their lexical views, one row each.
        vectors: their embeddings, float32 [n, D] blocks in row order; none: words alone are scored.
    """

    def __init__(
        self,
        rows: "csr_array",
        doc_ids: pa.ChunkedArray,
        *,
        vectors: Sequence[Floats] = (),
        first: int = 0,
        threads: int = 1,
    ) -> None:
        super().__init__(doc_ids, first, threads)
        starts = range(0, rows.shape[0], PASSAGES)
        self._blocks = [(start, rows[start : start + PASSAGES].astype(np.float64).tocsc()) for start in starts]
        self._embeddings = Embeddings(vectors) if vectors else None
        if self._embeddings is not None:
            self._centred_ND = np.empty((self._embeddings.rows, self._embeddings.width), dtype=np.float32)
            places = iter(np.split(self._centred_ND, np.cumsum([len(block) for block in vectors])[:-1]))
            self._mean_D, self._dense_error = self._embeddings.centre(lambda block: np.copyto(next(places), block))
            # Exact lexical scores are added in float64 here and there, to sums of other last bits.
            self._lexical_error = 2.0**-50 * float(np.abs(rows.data).max(initial=0))  # for weights that sum to 1

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        best = Best(queries.words.shape[0], k, self._places_N)
        search = self._search_words if self._embeddings is None else self._search_both
        numbers, size = range(queries.words.shape[0]), -(-QUERIES // self._threads)
        parts = (numbers[start : start + size] for start in numbers[::size])
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(lambda part: search(queries, part, k, best), parts))
        return best.ranking()

    def _search_words(self, queries: Views, part: range, k: int, best: Best) -> None:
        for start, lists in self._blocks:
            for query in part:
                scores_N = score_block(lists, *row_of(queries.words, query))
                near_N = near_best(scores_N, 0.0, k, best.least(query))
                best.offer(query, scores_N[near_N].astype(np.float32), near_N + start)

    def _search_both(self, queries: Views, part: range, k: int, best: Best) -> None:
        assert self._embeddings is not None
        dense_BD = queries.vectors_ND[part.start : part.stop]
        wide_BD = dense_BD.astype(np.float64)
        shares_B = np.vecdot(wide_BD, self._mean_D.astype(np.float64))  # added by the mean to all scores
        lengths_B = np.linalg.norm(wide_BD, axis=1)
        for start, lists in self._blocks:
            guesses_BN = dense_BD @ self._centred_ND[start : start + lists.shape[0]].T
            for at, query in enumerate(part):
                terms, weights = row_of(queries.words, query)
                scores_N = score_block(lists, terms, weights)
                error = self._dense_error * lengths_B[at] + self._lexical_error * np.abs(weights).sum(dtype=np.float64)
                near_N = near_best(guesses_BN[at] + scores_N + shares_B[at], error, k, best.least(query))
                dense_N = self._embeddings.inner(wide_BD[at, None], (near_N + start)[None])[0]
                best.offer(query, (dense_N + scores_N[near_N]).astype(np.float32), near_N + start)


def score_block(lists: "csc_array", terms: NDArray[np.int32], weights: Floats) -> Doubles:
    """The scores of a block of passages for one query, each added up in the order of the terms.

    Args:
        lists: of each term, the passages that have it and their weights, float64.
    """
    from scipy.sparse._sparsetools import csc_matvec  # here: only a lexical search needs scipy

    (rows, width), wide, scores_N = lists.shape, weights.astype(np.float64), np.zeros(lists.shape[0])
    if len(terms) > MANY_TERMS:  # DupMAE's queries have nearly all
        wide_V = np.zeros(width)
        wide_V[terms] = wide
        csc_matvec(rows, width, lists.indptr, lists.indices, lists.data, wide_V, scores_N)
        return scores_N
    # scipy's own product with some columns copies them first, which takes longer than adding them up. This is the
    # function beneath it: scores_N += column * weight, for a matrix of one column.
    for at, term in enumerate(terms.tolist()):
        csc_matvec(rows, 1, lists.indptr[term : term + 2], lists.indices, lists.data, wide[at : at + 1], scores_N)
    return scores_N
