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
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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

    def _score_block(self, block: CodedTokens, queries: CodedTokens, candidates: list[Ints] | None) -> list[Floats]:
        """Scores of each query with its candidates of a block; none: with all passages."""
        rows = np.arange(len(block)) if candidates is None else np.unique(np.concatenate(candidates))
        if not len(rows):
            return [np.empty(0, np.float32)] * len(queries)
        passages = block if candidates is None else block.take(rows)
        codes_TD, scale_T = passages.records_T["codes"].astype(np.float32), passages.records_T["scale"].copy()
        lengths_N, starts_N, starts = passages.lengths_N, passages.starts_N, queries.starts_N

        def score(query: int) -> Floats:
            asked_L = queries.records_T[int(starts[query]) : int(starts[query] + queries.lengths_N[query])]
            if candidates is None:
                return maxsim(asked_L, codes_TD, scale_T, starts_N)
            chosen = np.searchsorted(rows, candidates[query])
            tokens_T = token_places(starts_N[chosen], lengths_N[chosen])
            return maxsim(asked_L, codes_TD[tokens_T], scale_T[tokens_T], starts_of(lengths_N[chosen]))

        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(score, range(len(queries))))


def maxsim(query_L: NDArray[Any], codes_TD: Floats, scale_T: Floats, starts_N: Ints) -> Floats:
    """MaxSim of one query's coded tokens with passages whose tokens lie one after the other, float32 [N]."""
    if not len(starts_N):
        return np.empty(0, np.float32)
    products_LT = (query_L["codes"].astype(np.float32) @ codes_TD.T) * scale_T
    best_LN = np.maximum.reduceat(products_LT, starts_N, axis=1)
    total_N = np.zeros(len(starts_N))
    for best_N, scale in zip(best_LN, query_L["scale"].astype(np.float64), strict=True):  # one order of additions
        total_N += best_N * scale
    return total_N.astype(np.float32)


def _within(rows: Ints, start: int, stop: int) -> Ints:
    """Ascending rows that lie in start … stop - 1, counted from `start`."""
    first, last = np.searchsorted(rows, [start, stop])
    return rows[first:last] - start
