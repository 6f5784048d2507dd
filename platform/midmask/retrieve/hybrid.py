"""Hybrid search over one shard: dense score + lexical score, added before the cut, never after.

A passage may be among the best without being among the best of either part, so two ranked lists cannot be merged. Flat:
every passage has its exact lexical score plus a float32 dense score of known error; all that may be among the best by
that error are scored exactly, so the result is proven. Other factory strings (IVF, PQ, HNSW) find approximately: what
faiss proposes and what lexical search proposes are scored exactly.

Held: what `lexical.py` holds, a float32 copy of the vectors less their mean, and 64 MB of dense scores during a search.

The score of a pair is the dense inner product in float64 plus the lexical sum in float64 (`lexical.py`), rounded once
to float32.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from midmask.arrays import Doubles, Floats, Ints
from midmask.retrieve.best import Best, candidates, places_of
from midmask.retrieve.dense import DenseShard
from midmask.retrieve.lexical import BoundedScores, LexicalIndex, search_in_batches
from midmask.retrieve.pairs import Embeddings, check_finite, error_of_guess, longest_of
from midmask.retrieve.sparse import SparseRows


class HybridShard:
    """The passages `first` .. `first + N` of a corpus, searchable by both views at once.

    Args:
        vectors: their embeddings, float32 [n, D] blocks in row order.
        rows: their lexical views, N rows.
        doc_ids: their ids, N strings; equal scores rank by them.
        first: the corpus row of the first passage.
        index: a faiss index of the vectors, which finds approximately; none: the search is exact.
        rescore: as of `DenseShard`.
        threads: threads of a search; without an index they change no number.

    Raises:
        UserError: as `DenseShard`, if there is an index.
        ValueError: if the two views are not of the same number of passages.
    """

    def __init__(
        self,
        vectors: Sequence[Floats],
        rows: SparseRows,
        doc_ids: pa.ChunkedArray,
        *,
        first: int = 0,
        index: Any = None,
        rescore: int = 1,
        threads: int = 1,
    ) -> None:
        self._embeddings = Embeddings(vectors)
        if self._embeddings.rows != len(rows):
            raise ValueError(f"{self._embeddings.rows} dense and {len(rows)} lexical views; they must be of one shard")
        self._index = LexicalIndex(rows)
        self.doc_ids = doc_ids
        self.rows = len(rows)
        self._first = first
        self._threads = threads
        self._places_N = places_of(doc_ids)
        self._dense: FlatGuesses | DenseShard = (
            FlatGuesses(self._embeddings, float(np.abs(rows.weights).max(initial=0)))
            if index is None
            else DenseShard(vectors, doc_ids, index=index, rescore=rescore, threads=threads)
        )

    def search(self, dense_QD: Floats, lexical: SparseRows, k: int) -> tuple[Floats, Ints]:
        """The best min(k, N) passages of each query: scores float32 and corpus rows int64, both [Q, min(k, N)].

        Ordered by score descending, then document id ascending.

        Raises:
            UserError: if queries and passages are of different vocabularies, or a dense vector holds NaN.
        """
        k = min(k, self.rows)
        self._index.prepare(lexical)
        check_finite(dense_QD)
        wide_QD = dense_QD.astype(np.float64)
        proposals: FlatProposals | FaissProposals = (
            FlatProposals(self._dense, dense_QD, lexical, k)
            if isinstance(self._dense, FlatGuesses)
            else FaissProposals(self._dense.search(dense_QD, k)[1], k)
        )

        def search(part: slice) -> list[Best]:
            found = [Best(k, self._places_N) for _ in range(part.start, part.stop)]
            for members, block, scores in self._index.scores(lexical.slice(part.start, part.stop)):
                queries = np.array(members) + part.start
                for query, own, guessed in zip(queries, proposals.of(queries, block), scores, strict=True):
                    best = found[query - part.start]
                    near_N = proposals.near(query, own, guessed, best.least)
                    dense_N = self._embeddings.inner(wide_QD[query, None], (near_N + block.start)[None])[0]
                    best.offer((dense_N + guessed.exact(near_N)).astype(np.float32), near_N + block.start)
            return found

        scores_QK, rows_QK = search_in_batches(search, len(lexical), k, self._threads)
        return scores_QK, rows_QK + self._first


class FlatGuesses:
    """Float32 dense scores of all passages, and how wrong a sum of one and a lexical score can be."""

    def __init__(self, embeddings: Embeddings, heaviest: float) -> None:
        self._mean_D = embeddings.mean()
        self._centred_ND = np.empty((embeddings.rows, embeddings.width), dtype=np.float32)
        longest, start = 0.0, 0
        for centred_ND in embeddings.less(self._mean_D):
            longest = max(longest, longest_of(centred_ND))
            self._centred_ND[start : start + len(centred_ND)] = centred_ND
            start += len(centred_ND)
        self._of_dense = error_of_guess(longest, self._mean_D)
        # Exact lexical scores are added in float64 here and there, to sums of other last bits.
        self._of_lexical = 2.0**-50 * heaviest

    def scores(self, dense_BD: Floats, block: range) -> Floats:
        """Of some queries with a block of passages less their mean, [B, n]."""
        scores_BN: Floats = dense_BD @ self._centred_ND[block.start : block.stop].T
        return scores_BN

    def shares(self, dense_QD: Floats) -> Doubles:
        """The term that the mean adds to all scores of a query, [Q]."""
        shares_Q: Doubles = np.vecdot(dense_QD.astype(np.float64), self._mean_D.astype(np.float64))
        return shares_Q

    def errors(self, dense_QD: Floats, lexical: SparseRows) -> Doubles:
        """Bounds, [Q]."""
        lengths_Q = np.linalg.norm(dense_QD.astype(np.float64), axis=1)
        sums = np.concatenate([np.zeros(1), np.abs(lexical.weights).cumsum(dtype=np.float64)])
        errors_Q: Doubles = self._of_dense * lengths_Q + self._of_lexical * np.diff(sums[lexical.offsets])
        return errors_Q


class FlatProposals:
    """All passages that the errors leave a chance to be among the best k."""

    def __init__(self, guesses: FlatGuesses, dense_QD: Floats, lexical: SparseRows, k: int) -> None:
        self._guesses = guesses
        self._dense_QD = dense_QD
        self._shares_Q = guesses.shares(dense_QD)
        self._errors_Q = guesses.errors(dense_QD, lexical)
        self._k = k

    def of(self, queries: Ints, block: range) -> Floats:
        return self._guesses.scores(self._dense_QD[queries], block)

    def near(self, query: int, own_N: Floats, lexical: BoundedScores, least: np.float32) -> Ints:
        """Places in a block, for a query with its guesses of both views, if the k-th best is at least `least`."""
        sum_N = own_N + lexical.scores_N.astype(np.float64) + self._shares_Q[query]
        return candidates(sum_N, self._errors_Q[query] + lexical.error, self._k, least)


class FaissProposals:
    """What faiss finds, and the best k of a block by lexical score."""

    def __init__(self, rows_QK: Ints, k: int) -> None:
        self._rows_QK = rows_QK
        self._k = k

    def of(self, queries: Ints, block: range) -> list[Ints]:
        within = [rows_K[(rows_K >= block.start) & (rows_K < block.stop)] for rows_K in self._rows_QK[queries]]
        return [rows_N - block.start for rows_N in within]

    def near(self, query: int, own_N: Ints, lexical: BoundedScores, least: np.float32) -> Ints:
        """Places in a block; `least` is for the sum and no bound for one part."""
        return np.union1d(own_N, candidates(lexical.scores_N, lexical.error, self._k, np.float32(-np.inf)))
