"""Late-interaction search over one shard: MaxSim over 8-bit token vectors, of all passages or each query's candidates.

    score = sum over the tokens i of the query of s_i · max over the tokens j of the passage of (c_i · c_j) t_j

c are codes, s and t the scales of both sides. A product of codes is a whole number below 2^24 (width <= 1,024), so
float32 sums it exactly, in whatever order: the score of a pair is the same wherever the pair is met. The maximum is
taken in float32, the sum in float64 and rounded once to float32.

Held at once: the codes of one block of passages in float32, or as many of them as some query asks for.

Shapes: Q queries, K results of a query, N passages of a block, L tokens of one query, T tokens of some passages.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from midmask.core.arrays import Floats, Ints
from midmask.retrieve.best import Best, Candidates, Neighbours, Shard
from midmask.retrieve.views import CodedTokens, Views, starts_of, token_places


class LateShard(Shard):
    """Passages that are searched by MaxSim over their token vectors.

    Args:
        blocks: the token vectors in row order.
    """

    def __init__(
        self, blocks: Sequence[CodedTokens], doc_ids: pa.ChunkedArray, *, first: int = 0, threads: int = 1
    ) -> None:
        super().__init__(doc_ids, first, threads)
        self._blocks = blocks
        self._starts = np.cumsum([0, *(len(block) for block in blocks)], dtype=np.int64)

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        tokens = queries.tokens
        best = Best(len(tokens), k, self._places_N)
        for block, start in zip(self._blocks, self._starts[:-1].tolist(), strict=True):
            block_rows = None
            if candidates is not None:
                block_rows = [_within(rows, start, start + len(block)) for rows in candidates]
            for query, scores in enumerate(self._score_block(block, tokens, block_rows)):
                rows = np.arange(len(block)) if block_rows is None else block_rows[query]
                best.offer(query, scores, rows + start)
        return best.ranking()

    def _score_block(self, block: CodedTokens, queries: CodedTokens, wanted: list[Ints] | None) -> list[Floats]:
        """Scores of each query with its wanted passages of a block; none: with all of them."""
        rows = np.arange(len(block)) if wanted is None else np.unique(np.concatenate(wanted))
        if not len(rows):
            return [np.empty(0, np.float32)] * len(queries)
        passages = DecodedTokens(block if wanted is None else block.take(rows))
        starts = queries.starts_N

        def score(query: int) -> Floats:
            part = slice(int(starts[query]), int(starts[query] + queries.lengths_N[query]))
            chosen = None if wanted is None else np.searchsorted(rows, wanted[query])
            return passages.score(queries.records_T["codes"][part], queries.records_T["scale"][part], chosen)

        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(score, range(len(queries))))


class DecodedTokens:
    """The token vectors of some passages, their codes as float32."""

    def __init__(self, coded: CodedTokens) -> None:
        self._codes_TD = coded.records_T["codes"].astype(np.float32)
        self._scale_T = np.ascontiguousarray(coded.records_T["scale"])
        self._lengths_N = coded.lengths_N
        self._starts_N = coded.starts_N

    def score(self, codes_LD: np.ndarray, scale_L: Floats, chosen: Ints | None) -> Floats:
        """MaxSim of one query with the passages at these positions, float32; none: with all of them."""
        codes_TD, scale_T, starts = self._codes_TD, self._scale_T, self._starts_N
        if chosen is not None:
            lengths = self._lengths_N[chosen]
            tokens_T = token_places(starts[chosen], lengths)
            codes_TD, scale_T, starts = codes_TD[tokens_T], scale_T[tokens_T], starts_of(lengths)
        if not len(starts):
            return np.empty(0, np.float32)
        products_LT = (codes_LD.astype(np.float32) @ codes_TD.T) * scale_T
        best_LN = np.maximum.reduceat(products_LT, starts, axis=1)
        total_N = np.zeros(len(starts))
        for best_N, scale in zip(best_LN, scale_L.astype(np.float64), strict=True):  # one order of additions
            total_N += best_N * scale
        return total_N.astype(np.float32)


def _within(rows: Ints, start: int, stop: int) -> Ints:
    """Ascending rows that lie in start … stop - 1, counted from `start`."""
    first, last = np.searchsorted(rows, [start, stop])
    return rows[first:last] - start
