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

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    from scipy.sparse import csr_array

PASSAGES = 65_536
"""Passages of a block: their scores for one query stay in a core's cache."""

MANY_TERMS = 4096
"""Terms of a query from which a block's lists are added in one go, those of other terms times 0; the sums are the same.
"""

QUERIES = 256
"""Queries searched at once, over all threads: bounds what is held of results in the making."""


class LexicalShard(Shard):
    """Passages that are searched by their lexical views, one row each."""

    def __init__(self, rows: "csr_array", doc_ids: pa.ChunkedArray, *, first: int = 0, threads: int = 1) -> None:
        super().__init__(doc_ids, first, threads)
        self._index = LexicalIndex(rows)

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        words = queries.words
        best = Best(words.shape[0], k, self._places_N)

        def search(part: slice) -> None:
            for block, scores in self._index.scores(words[part]):
                for query, scores_N in enumerate(scores, start=part.start):
                    near_N = near_best(scores_N, 0.0, k, best.least(query))
                    best.offer(query, scores_N[near_N].astype(np.float32), near_N + block.start)

        search_in_batches(search, words.shape[0], self._threads)
        return best.ranking()


def search_in_batches(search: Callable[[slice], None], queries: int, threads: int) -> None:
    """Searches some queries at a time."""
    size = -(-QUERIES // threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(search, (slice(start, min(start + size, queries)) for start in range(0, queries, size))))


class LexicalIndex:
    """Scores of queries with all passages of a shard, a block at a time."""

    def __init__(self, rows: "csr_array") -> None:
        self._blocks = [range(at, min(at + PASSAGES, rows.shape[0])) for at in range(0, rows.shape[0], PASSAGES)]
        self._inverted = [InvertedBlock(rows[block.start : block.stop]) for block in self._blocks]

    def scores(self, queries: "csr_array") -> Iterator[tuple[range, Iterable[Doubles]]]:
        """Each block of passages, and every query's scores of it."""
        for block, lists in zip(self._blocks, self._inverted, strict=True):
            yield block, (lists.scores(*row_of(queries, query)) for query in range(queries.shape[0]))


class InvertedBlock:
    """Inverted lists of a block of passages: of each term, the passages that have it and their weights."""

    def __init__(self, rows: "csr_array") -> None:
        lists = rows.astype(np.float64).tocsc()
        self._rows, self._width = rows.shape
        self._starts, self._passages, self._weights = lists.indptr, lists.indices, lists.data

    def scores(self, terms: NDArray[np.int32], weights: Floats) -> Doubles:
        """Of one query."""
        from scipy.sparse._sparsetools import csc_matvec  # here: only a lexical search needs scipy

        scores_N = np.zeros(self._rows)
        lists = self._passages, self._weights
        wide = weights.astype(np.float64)
        if len(terms) > MANY_TERMS:  # DupMAE's queries have nearly all
            wide_V = np.zeros(self._width)
            wide_V[terms] = wide
            csc_matvec(self._rows, self._width, self._starts, *lists, wide_V, scores_N)
            return scores_N
        # scipy's own product with some columns copies them first, which takes longer than adding them up. This is the
        # function beneath it: scores_N += column * weight, for a matrix of one column.
        for at, term in enumerate(terms.tolist()):
            csc_matvec(self._rows, 1, self._starts[term : term + 2], *lists, wide[at : at + 1], scores_N)
        return scores_N


class HybridShard(Shard):
    """Passages that are searched by both views at once.

    Args:
        vectors: their embeddings, float32 [n, D] blocks in row order.
        rows: their lexical views, one row each.
    """

    def __init__(
        self,
        vectors: Sequence[Floats],
        rows: "csr_array",
        doc_ids: pa.ChunkedArray,
        *,
        first: int = 0,
        threads: int = 1,
    ) -> None:
        super().__init__(doc_ids, first, threads)
        self._embeddings = Embeddings(vectors)
        self._index = LexicalIndex(rows)
        self._centred_ND = np.empty((self._embeddings.rows, self._embeddings.width), dtype=np.float32)
        places = iter(np.split(self._centred_ND, np.cumsum([len(block) for block in vectors])[:-1]))
        self._mean_D, self._dense_error = self._embeddings.centre(lambda block: np.copyto(next(places), block))
        # Exact lexical scores are added in float64 here and there, to sums of other last bits.
        self._lexical_error = 2.0**-50 * float(np.abs(rows.data).max(initial=0))  # for weights that sum to 1

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        words, dense_QD = queries.words, queries.vectors_ND
        wide_QD = dense_QD.astype(np.float64)
        shares_Q = np.vecdot(wide_QD, self._mean_D.astype(np.float64))  # added by the mean to all scores
        errors_Q = self._errors(words, wide_QD)
        best = Best(words.shape[0], k, self._places_N)

        def search(part: slice) -> None:
            for block, scores in self._index.scores(words[part]):
                guesses_BN = dense_QD[part] @ self._centred_ND[block.start : block.stop].T
                for query, guesses_N, scores_N in zip(range(part.start, part.stop), guesses_BN, scores, strict=True):
                    sum_N = guesses_N + scores_N + shares_Q[query]
                    near_N = near_best(sum_N, errors_Q[query], k, best.least(query))
                    dense_N = self._embeddings.inner(wide_QD[query, None], (near_N + block.start)[None])[0]
                    best.offer(query, (dense_N + scores_N[near_N]).astype(np.float32), near_N + block.start)

        search_in_batches(search, words.shape[0], self._threads)
        return best.ranking()

    def _errors(self, words: "csr_array", dense_QD: Doubles) -> Doubles:
        """How far the sum of a guess and a lexical score may lie from the score, for each query."""
        sums = np.concatenate([np.zeros(1), np.abs(words.data).cumsum(dtype=np.float64)])
        lengths_Q: Doubles = np.linalg.norm(dense_QD, axis=1)
        lexical_Q: Doubles = np.diff(sums[words.indptr])
        return self._dense_error * lengths_Q + self._lexical_error * lexical_Q
