"""Search over one shard by words, or by words and dense vectors together; float64 decides, in one order of summing.

The score of a pair is the sum over terms, ascending, of query weight times passage weight. Products of float32 are
exact in float64 and the order of the sum is fixed, so a score does not know of shards, blocks, threads or which of two
ways led to it:

    few postings    inverted lists of a block of passages: each list of a query term is added to the block's scores
    many postings   a query that touches most postings (DupMAE's is dense in V) is multiplied with the passages' rows in
                    a tile of queries, in float32, so that each posting is read once a tile; what may be among the best,
                    by the error that such a sum can have, is scored in float64

Held for each entry: 8 bytes of the rows, and 12 of the inverted lists once a query needs them; for a search, about
100 MB beside its result, whatever the number of passages. Weights and scores may be negative. A passage that shares no
term with the query scores 0 and takes its place in the ranking like any other.

Hybrid: the dense inner product in float64 is added to the lexical sum before the cut, and the result rounded once to
float32. A passage may be among the best without being among the best of either part, so two ranked lists cannot be
merged. Flat: every passage has its exact lexical score plus a float32 dense score of known error; all that may be among
the best by that error are scored exactly, so the result is proven. Other factory strings (IVF, PQ, HNSW) find
approximately: what faiss proposes and what lexical search proposes are scored exactly. Held besides: a float32 copy of
the vectors less their mean, and 64 MB of dense scores during a search.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.core.arrays import Doubles, Floats, Ints
from midmask.errors import UserError
from midmask.retrieve.best import Best, Candidates, Neighbours, Shard, near_best
from midmask.retrieve.dense import GATHERED, DenseShard, Embeddings, check_finite, error_of_guess, longest_of
from midmask.retrieve.sparse import row_of
from midmask.retrieve.views import Views

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PASSAGES = 65_536
"""Passages of a block: their scores for one query stay in a core's cache."""

TILE = 16
"""Queries of a tile, their weights side by side in memory."""

MANY = 0.5
"""Share of all postings from which a query goes by tile; either way gives the same scores."""

QUERIES = 256
"""Queries searched at once, over all threads: bounds what is held of results in the making."""


class LexicalShard(Shard):
    """Passages that are searched by their lexical views, one row each."""

    def __init__(self, rows: "csr_array", doc_ids: pa.ChunkedArray, *, first: int = 0, threads: int = 1) -> None:
        super().__init__(doc_ids, first, threads)
        self._index = LexicalIndex(rows)

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        words = queries.words
        self._index.prepare(words)

        best = Best(words.shape[0], k, self._places_N)

        def search(part: slice) -> None:
            for members, block, scores in self._index.scores(words[part]):
                for member, guessed in zip(members, scores, strict=True):
                    query = member + part.start
                    near_N = near_best(guessed.scores_N, guessed.error, k, best.least(query))
                    best.offer(query, guessed.exact(near_N).astype(np.float32), near_N + block.start)

        search_in_batches(search, words.shape[0], self._threads)
        return best.ranking()


def search_in_batches(search: Callable[[slice], None], queries: int, threads: int) -> None:
    """Searches some queries at a time."""
    size = -(-QUERIES // threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(search, (slice(start, min(start + size, queries)) for start in range(0, queries, size))))


@dataclass(frozen=True)
class BoundedScores:
    """Scores of a query against a block of passages."""

    scores_N: NDArray[np.floating]  # float64 or float32, within ± `error` of the exact ones
    error: float
    exact: Callable[[Ints], Doubles]  # rows of the block -> their exact scores


class LexicalIndex:
    """Scores of sparse or dense queries with all passages of a shard, a block at a time."""

    def __init__(self, rows: "csr_array") -> None:
        self._rows = rows
        count, width = rows.shape
        self._postings_V = np.bincount(rows.indices, minlength=width)
        self._blocks = [range(at, min(at + PASSAGES, count)) for at in range(0, count, PASSAGES)]

    def prepare(self, queries: "csr_array") -> None:
        """Builds what `scores` needs, before threads ask for it together.

        Raises:
            UserError: if queries and passages are of different vocabularies.
        """
        theirs, ours = queries.shape[1], self._rows.shape[1]
        if theirs != ours:
            raise UserError(
                f"queries over {theirs} terms and passages over {ours}: they come from different vocabularies; encode "
                "both with one model"
            )
        many_Q = self._has_many_postings(queries)
        _ = not many_Q.all() and self._inverted, many_Q.any() and self._multiplied

    def scores(self, queries: "csr_array") -> Iterator[tuple[list[int], range, Iterator[BoundedScores]]]:
        """Some queries, a block of passages, and each one's scores of the block, until all have met all."""
        many_Q = self._has_many_postings(queries)
        few, many = np.flatnonzero(~many_Q).tolist(), np.flatnonzero(many_Q).tolist()
        for block, lists in zip(self._blocks, self._inverted if few else [], strict=False):
            yield few, block, (lists.scores(*row_of(queries, query)) for query in few)
        tiles = [many[at : at + TILE] for at in range(0, len(many), TILE)]
        dense = [np.ascontiguousarray(queries[members].toarray().T) for members in tiles]
        for block, matrix in zip(self._blocks, self._multiplied if many else [], strict=False):
            for members, tile_VB in zip(tiles, dense, strict=True):
                yield members, block, matrix.scores(tile_VB)

    def _has_many_postings(self, queries: "csr_array") -> NDArray[np.bool_]:
        touched = np.concatenate([np.zeros(1, np.int64), self._postings_V[queries.indices].cumsum()])
        many_Q: NDArray[np.bool_] = np.diff(touched[queries.indptr]) > MANY * self._rows.nnz
        return many_Q

    @cached_property
    def _inverted(self) -> list["InvertedBlock"]:
        return [InvertedBlock(self._rows[block.start : block.stop]) for block in self._blocks]

    @cached_property
    def _multiplied(self) -> list["RowsBlock"]:
        return [RowsBlock(self._rows[block.start : block.stop]) for block in self._blocks]


class InvertedBlock:
    """Inverted lists of a block of passages: of each term, the passages that have it and their weights."""

    def __init__(self, rows: "csr_array") -> None:
        lists = rows.astype(np.float64).tocsc()
        self._rows = rows.shape[0]
        self._starts, self._passages, self._weights = lists.indptr, lists.indices, lists.data

    def scores(self, terms: NDArray[np.int32], weights: Floats) -> BoundedScores:
        """Of one query; exact."""
        from scipy.sparse._sparsetools import csc_matvec  # here: only a lexical search needs scipy

        scores_N = np.zeros(self._rows)
        wide = weights.astype(np.float64)
        # scipy's own product with some columns copies them first, which takes longer than adding them up. This is the
        # function beneath it: scores_N += column * weight, for a matrix of one column.
        for at, term in enumerate(terms.tolist()):
            edges, weight = self._starts[term : term + 2], wide[at : at + 1]
            csc_matvec(self._rows, 1, edges, self._passages, self._weights, weight, scores_N)
        return BoundedScores(scores_N, 0.0, scores_N.__getitem__)


class RowsBlock:
    """The rows of a block of passages, as a matrix."""

    def __init__(self, rows: "csr_array") -> None:
        self._matrix_NV = rows
        lengths = np.diff(rows.indptr)
        squares = np.add.reduceat(rows.data.astype(np.float64) ** 2, rows.indptr[:-1][lengths > 0])
        # Higham 2002, (3.5), as in dense.py; but a sum has only as many products as the passage has terms.
        unit = int(lengths.max(initial=0)) * 2.0**-24
        self._error = float(np.sqrt(squares.max(initial=0))) * unit / (1 - unit)

    def scores(self, tile_VB: Floats) -> Iterator[BoundedScores]:
        """Of some queries that are dense in V."""
        guesses_BN = np.ascontiguousarray((self._matrix_NV @ tile_VB).T)
        for query_V, scores_N in zip(tile_VB.T.astype(np.float64), guesses_BN, strict=True):
            yield BoundedScores(
                scores_N, self._error * float(np.linalg.norm(query_V)), partial(self._score_exactly, query_V)
            )

    def _score_exactly(self, query_V: Doubles, places_N: Ints) -> Doubles:
        scores_N = np.empty(len(places_N))
        for at in range(0, len(places_N), GATHERED):
            some = slice(at, at + GATHERED)
            scores_N[some] = self._matrix_NV[places_N[some]].astype(np.float64) @ query_V
        return scores_N


class HybridShard(Shard):
    """Passages that are searched by both views at once.

    Args:
        vectors: their embeddings, float32 [n, D] blocks in row order.
        rows: their lexical views, one row each.
        index: a faiss index of the vectors, which finds approximately; none: the search is exact.
        rescore: as of `DenseShard`.

    Raises:
        UserError: as `DenseShard`, if there is an index.
        ValueError: if the two views are not of the same number of passages.
    """

    def __init__(
        self,
        vectors: Sequence[Floats],
        rows: "csr_array",
        doc_ids: pa.ChunkedArray,
        *,
        first: int = 0,
        index: Any = None,
        rescore: int = 1,
        threads: int = 1,
    ) -> None:
        super().__init__(doc_ids, first, threads)
        self._embeddings = Embeddings(vectors)
        if self._embeddings.rows != rows.shape[0]:
            raise ValueError(f"{self._embeddings.rows} dense and {rows.shape[0]} lexical views are not of one shard")
        self._index = LexicalIndex(rows)
        self._propose: Callable[[Views, int], FlatProposals | FaissProposals]
        if index is None:
            heaviest = float(np.abs(rows.data).max(initial=0))
            self._propose = partial(FlatProposals, FlatGuesses(self._embeddings, heaviest))
        else:
            dense = DenseShard(vectors, doc_ids, index=index, rescore=rescore, threads=threads)
            self._propose = partial(FaissProposals, dense)

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        words, dense_QD = queries.words, queries.vectors_ND
        self._index.prepare(words)
        check_finite(dense_QD)
        wide_QD = dense_QD.astype(np.float64)
        proposals = self._propose(queries, k)
        best = Best(words.shape[0], k, self._places_N)

        def search(part: slice) -> None:
            for members, block, scores in self._index.scores(words[part]):
                numbers = np.array(members) + part.start
                for query, own, guessed in zip(numbers, proposals.of(numbers, block), scores, strict=True):
                    near_N = proposals.near(query, own, guessed, best.least(query))
                    dense_N = self._embeddings.inner(wide_QD[query, None], (near_N + block.start)[None])[0]
                    best.offer(query, (dense_N + guessed.exact(near_N)).astype(np.float32), near_N + block.start)

        search_in_batches(search, words.shape[0], self._threads)
        return best.ranking()


class FlatGuesses:
    """What float32 dense scores of all passages are made of, and how wrong their sums with lexical ones can be."""

    def __init__(self, embeddings: Embeddings, heaviest: float) -> None:
        self.mean_D = embeddings.mean()
        self.centred_ND = np.empty((embeddings.rows, embeddings.width), dtype=np.float32)
        longest, start = 0.0, 0
        for centred_ND in embeddings.less(self.mean_D):
            longest = max(longest, longest_of(centred_ND))
            self.centred_ND[start : start + len(centred_ND)] = centred_ND
            start += len(centred_ND)
        self.dense_error = error_of_guess(longest, self.mean_D)  # for a query of length 1
        # Exact lexical scores are added in float64 here and there, to sums of other last bits.
        self.lexical_error = 2.0**-50 * heaviest  # for weights that sum to 1


class FlatProposals:
    """All passages that the errors leave a chance to be among the best k."""

    def __init__(self, guesses: FlatGuesses, queries: Views, k: int) -> None:
        self._centred_ND = guesses.centred_ND
        self._dense_QD, lexical = queries.vectors_ND, queries.words
        self._k = k
        wide_QD = self._dense_QD.astype(np.float64)
        self._shares_Q = np.vecdot(wide_QD, guesses.mean_D.astype(np.float64))  # added by the mean to all scores
        sums = np.concatenate([np.zeros(1), np.abs(lexical.data).cumsum(dtype=np.float64)])
        lengths_Q = np.linalg.norm(wide_QD, axis=1)
        self._errors_Q = guesses.dense_error * lengths_Q + guesses.lexical_error * np.diff(sums[lexical.indptr])

    def of(self, queries: Ints, block: range) -> Floats:
        """Dense scores of some queries with a block of passages less their mean, [B, n]."""
        scores_BN: Floats = self._dense_QD[queries] @ self._centred_ND[block.start : block.stop].T
        return scores_BN

    def near(self, query: int, own_N: Floats, lexical: BoundedScores, least: np.float32) -> Ints:
        """Places in a block, for a query with its guesses of both views, if the k-th best is at least `least`."""
        sum_N = own_N + lexical.scores_N.astype(np.float64) + self._shares_Q[query]
        return near_best(sum_N, self._errors_Q[query] + lexical.error, self._k, least)


class FaissProposals:
    """The passages that faiss finds, and the best k of a block by lexical score."""

    def __init__(self, dense: DenseShard, queries: Views, k: int) -> None:
        self._rows_QK = dense.search(queries, k)[1]
        self._k = k

    def of(self, queries: Ints, block: range) -> list[Ints]:
        within = [rows_K[(rows_K >= block.start) & (rows_K < block.stop)] for rows_K in self._rows_QK[queries]]
        return [rows_N - block.start for rows_N in within]

    def near(self, query: int, own_N: Ints, lexical: BoundedScores, least: np.float32) -> Ints:
        """Places in a block; `least` is for the sum and no bound for one part."""
        return np.union1d(own_N, near_best(lexical.scores_N, lexical.error, self._k, np.float32(-np.inf)))
