"""Lexical search over one shard of passages, exact: every score is summed in float64, in one order.

The score of a pair is the sum over terms, ascending, of query weight times passage weight: products of float32 are
exact in float64, and the order of the sum is fixed, so a score does not know of shards, blocks, threads or which of two
ways it was computed by:

    few postings    inverted lists of a block of passages: each list of a query term is added to the block's scores
    many postings   a query that touches most postings (DupMAE's is dense in V) is multiplied in a tile of queries with
                    the passages' rows, so that each posting is read once a tile

Weights and scores may be negative. A passage that shares no term with the query scores 0 and takes its place in the
ranking like any other.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse._sparsetools import csc_matvec

from midmask.errors import UserError
from midmask.retrieve.best import Best, floor, places_of
from midmask.retrieve.sparse import SparseRows

PASSAGES = 65_536
"""Passages of a block: their scores (8 bytes each) stay in a core's cache."""

TILE = 16
"""Queries of a tile, their weights side by side in memory."""

TILE_ROWS = 16_384
"""Passages multiplied with a tile at once."""

MANY = 0.5
"""Share of all postings from which a query goes by tile; either way gives the same scores."""

QUERIES = 256
"""Queries searched at once, over all threads: bounds what is held of results in the making."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class LexicalShard:
    """The passages `first` .. `first + N` of a corpus, searchable by their lexical views.

    Args:
        rows: the views, N rows.
        doc_ids: their ids, N strings; equal scores rank by them.
        first: the corpus row of the first passage.
        threads: threads of a search; they change no number.
    """

    def __init__(self, rows: SparseRows, doc_ids: pa.ChunkedArray, *, first: int = 0, threads: int = 1) -> None:
        self.index = LexicalIndex(rows)
        self.doc_ids = doc_ids
        self.rows = len(rows)
        self._first = first
        self._threads = threads
        self._places_N = places_of(doc_ids)

    def search(self, queries: SparseRows, k: int) -> tuple[Floats, Ints]:
        """The best min(k, N) passages of each query: scores float32 and corpus rows int64, both [Q, min(k, N)].

        Ordered by score descending, then document id ascending.

        Raises:
            UserError: if queries and passages are of different vocabularies.
        """
        k = min(k, self.rows)
        self.index.prepare(queries)

        def search(part: slice) -> list[Best]:
            found = [Best(k, self._places_N) for _ in range(part.start, part.stop)]
            for members, block, scores in self.index.scores(queries.slice(part.start, part.stop)):
                for query, scores_N in zip(members, scores, strict=True):
                    rounded_N = scores_N.astype(np.float32)
                    near_N = np.flatnonzero(rounded_N >= max(found[query].least, floor(rounded_N, k)))
                    found[query].offer(rounded_N[near_N], near_N + block.start)
            return found

        scores_QK, rows_QK = gathered(search, len(queries), k, self._threads)
        return scores_QK, rows_QK + self._first


def gathered(search: Callable[[slice], list[Best]], queries: int, k: int, threads: int) -> tuple[Floats, Ints]:
    """What `search` finds for parts of the queries, some at once: scores and rows [Q, k], the best first."""
    scores_QK = np.empty((queries, k), dtype=np.float32)
    rows_QK = np.empty((queries, k), dtype=np.int64)
    size = -(-QUERIES // threads)

    def run(start: int) -> None:
        part = slice(start, min(start + size, queries))
        for query, best in enumerate(search(part), start):
            scores_QK[query], rows_QK[query] = best.ordered()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(0, queries, size)))
    return scores_QK, rows_QK


class LexicalIndex:
    """Exact scores of sparse or dense queries with all passages of a shard, a block at a time."""

    def __init__(self, rows: SparseRows) -> None:
        self._rows = rows
        self._postings_V = np.bincount(rows.terms, minlength=rows.width)

    def prepare(self, queries: SparseRows) -> None:
        """Builds what `scores` needs, before threads ask for it together.

        Raises:
            UserError: if queries and passages are of different vocabularies.
        """
        if queries.width != self._rows.width:
            raise UserError(
                f"queries over {queries.width} terms and passages over {self._rows.width}: they come from different "
                "vocabularies; encode both with one model"
            )
        if not self._goes_by_tile(queries).all():
            _ = self._inverted

    def scores(self, queries: SparseRows) -> Iterator[tuple[list[int], range, Iterator[Doubles]]]:
        """Some queries, a block of passages, and each one's scores of the block, until all have met all."""
        by_tile_Q = self._goes_by_tile(queries)
        few, many = np.flatnonzero(~by_tile_Q).tolist(), np.flatnonzero(by_tile_Q).tolist()
        for block, lists in self._inverted if few else []:
            yield few, block, (lists.scores(*queries.row(query)) for query in few)
        tiles = [(many[at : at + TILE], _tile(queries, many[at : at + TILE])) for at in range(0, len(many), TILE)]
        for block in self._blocks(TILE_ROWS) if tiles else []:
            block_NV = _matrix(self._rows.slice(block.start, block.stop))
            for members, tile_VB in tiles:
                yield members, block, map(np.ascontiguousarray, (block_NV @ tile_VB).T)

    def _blocks(self, size: int) -> list[range]:
        return [range(start, min(start + size, len(self._rows))) for start in range(0, len(self._rows), size)]

    def _goes_by_tile(self, queries: SparseRows) -> NDArray[np.bool_]:
        touched = np.concatenate([np.zeros(1, np.int64), self._postings_V[queries.terms].cumsum()])
        return np.diff(touched[queries.offsets]) > MANY * len(self._rows.terms)

    @cached_property
    def _inverted(self) -> list[tuple[range, "Inverted"]]:
        blocks = self._blocks(PASSAGES)
        return [(block, Inverted(self._rows.slice(block.start, block.stop))) for block in blocks]


class Inverted:
    """Inverted lists of a block of passages: of each term, the passages that have it and their weights."""

    def __init__(self, rows: SparseRows) -> None:
        lists = _matrix(rows).tocsc()
        self._rows = len(rows)
        self._starts = lists.indptr
        self._passages = lists.indices
        self._weights = lists.data

    def scores(self, terms: NDArray[np.int32], weights: Floats) -> Doubles:
        """Of one query with each passage of the block."""
        scores_N = np.zeros(self._rows)
        wide = weights.astype(np.float64)
        # scipy's own product with some columns copies them first, which takes longer than adding them up. This is the
        # function beneath it: scores_N += column * weight, for a matrix of one column.
        for at, term in enumerate(terms.tolist()):
            edges, weight = self._starts[term : term + 2], wide[at : at + 1]
            csc_matvec(self._rows, 1, edges, self._passages, self._weights, weight, scores_N)
        return scores_N


def _matrix(rows: SparseRows) -> sparse.csr_array:
    """In float64; indices and offsets of one type, as scipy's functions need them to copy nothing."""
    entries = rows.weights.astype(np.float64), rows.terms, rows.offsets.astype(np.int32)
    return sparse.csr_array(entries, shape=(len(rows), rows.width))


def _tile(queries: SparseRows, members: list[int]) -> Doubles:
    tile_VB = np.zeros((queries.width, len(members)))
    for column, query in enumerate(members):
        terms, weights = queries.row(query)
        tile_VB[terms, column] = weights
    return tile_VB
