"""Dense search over one shard of passages: faiss proposes, float64 decides. The only importer of faiss.

A float32 matrix product gives the same pair different last bits in matrices of different shape, so a ranking by it
would depend on the number of shards. Here faiss only proposes candidates. Their final score is the inner product in
float64, computed pair by pair and rounded to float32, the same wherever the pair is met. For a flat index the result is
proven exact: if the error bound of the float32 scores leaves room for a passage that was not proposed, more are asked
for. A flat index holds the vectors less their mean: that moves all scores of a query by one constant, and makes the
bound small where it matters, since the vectors of a young encoder are nearly one vector.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from midmask.core.arrays import Doubles, Floats, Ints
from midmask.core.config import ABSENT, FAISS_BUILDS, library_versions
from midmask.errors import UserError
from midmask.retrieve.best import Candidates, Neighbours, Shard, in_order
from midmask.retrieve.views import Views

GATHERED = 512
"""Vectors copied at once for exact scoring; few enough to stay in the cache."""


class Embeddings:
    """The vectors of N passages.

    Args:
        blocks: finite float32 [n, D], in row order; memory maps stay on disk.
    """

    def __init__(self, blocks: Sequence[Floats]) -> None:
        self._blocks = [np.asarray(block) for block in blocks]  # a memory map's own class is slow to take rows of
        self._starts = np.cumsum([0, *map(len, blocks)])
        self.rows, self.width = int(self._starts[-1]), blocks[0].shape[1]
        # numpy sorts integers of 16 bits by counting, which holds up to 65,536 blocks.
        self._block_of_N = np.repeat(np.arange(len(blocks), dtype=np.min_scalar_type(len(blocks))), [*map(len, blocks)])

    def centre(self, take: Callable[[Floats], Any]) -> tuple[Floats, float]:
        """Hands on copies of the blocks less the mean of all vectors.

        Returns:
            The mean, rounded to float32, [D]; and how far a guess (a product with a centred vector in float32), plus
            the mean's share, may lie from the score, for a query of length 1.

        Higham 2002, (3.5): |fl(x·y) - x·y| <= D u / (1 - D u) · |x|·|y| for any order of summation, u = 2^-24; one more
        u for rounding the centred vector, and a little for the sums in float64.
        """
        total_D = sum(block.sum(axis=0, dtype=np.float64) for block in self._blocks)
        mean_D, longest = np.asarray(total_D / self.rows, dtype=np.float32), 0.0
        for block in self._blocks:
            centred_ND = np.ascontiguousarray(block - mean_D)
            longest = max(longest, float(np.linalg.norm(centred_ND.astype(np.float64), axis=-1).max(initial=0)))
            take(centred_ND)
        unit = (self.width + 1) * 2.0**-24
        return mean_D, longest * unit / (1 - unit) + 2.0**-40 * float(np.linalg.norm(mean_D))

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


MARGIN = 32
"""Candidates asked for beyond k at first."""

PAIRS = 1 << 22
"""Proposed pairs held at once: bounds the memory of a search whose scores lie so close that many must be proposed."""

SCORED = 1 << 16
"""Pairs scored exactly in one go, by one thread."""

GPU_PROPOSALS = 2048
"""Candidates that faiss can choose among on a GPU; what needs more is searched on the CPU."""


def load_faiss() -> Any:
    """The module, of which exactly one build must be installed: two of them overwrite each other's files.

    Raises:
        UserError: if there is none, or more than one.
    """
    builds = [name for name, version in library_versions(FAISS_BUILDS).items() if version != ABSENT]
    if not builds:
        raise UserError("faiss is not installed: pip install 'midmask[cpu]', or 'midmask[gpu]' where there is a GPU")
    if len(builds) > 1:
        raise UserError(
            f"{' and '.join(builds)} are both installed and overwrite each other; pip uninstall -y {' '.join(builds)}, "
            "then pip install one of 'midmask[cpu]' and 'midmask[gpu]'"
        )
    import faiss

    return faiss


class DenseShard(Shard):
    """Passages that are searched by their dense views.

    Args:
        vectors: their embeddings, float32 [n, D] blocks in row order.
        index: a faiss index of these vectors (IVF, PQ, HNSW), which finds approximately what is then scored exactly;
            none: an exact one is made.
        rescore: candidates of an approximate index that are scored, for each passage that is asked for.

    Raises:
        UserError: if faiss is missing.
    """

    def __init__(
        self,
        vectors: Sequence[Floats],
        doc_ids: pa.ChunkedArray,
        *,
        first: int = 0,
        index: Any = None,
        rescore: int = 1,
        threads: int = 1,
    ) -> None:
        super().__init__(doc_ids, first, threads)
        faiss = load_faiss()
        self._faiss = faiss
        faiss.omp_set_num_threads(threads)
        self._embeddings = Embeddings(vectors)
        self._exact = index is None
        self._rescore = rescore
        self._index = index
        if index is None:
            self._index = faiss.IndexFlatIP(self._embeddings.width)
            self._mean_D, self._error = self._embeddings.centre(self._index.add)
        # On the first GPU that the process sees (Ray shows an actor its own); a build of faiss for CPUs sees none.
        # faiss leaves on the CPU what it cannot do there, such as HNSW.
        gpus = faiss.get_num_gpus()
        self._on_gpu: Any = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, self._index) if gpus else None

    def _search(self, queries: Views, k: int, candidates: Candidates | None) -> Neighbours:
        queries_QD = queries.vectors_ND
        scores_QK = np.full((len(queries_QD), k), -np.inf, dtype=np.float32)
        rows_QK = np.full((len(queries_QD), k), -1, dtype=np.int64)
        self._faiss.omp_set_num_threads(self._threads)
        first = k if self._exact else k * self._rescore
        open_Q, proposals = np.arange(len(queries_QD)), min(first + MARGIN, self.rows)
        while len(open_Q):
            proven_Q = np.empty(len(open_Q), dtype=np.bool_)
            few = max(1, PAIRS // proposals)
            for at in range(0, len(open_Q), few):
                some = open_Q[at : at + few]
                scores_QK[some], rows_QK[some], proven_Q[at : at + few] = self._round(queries_QD[some], k, proposals)
            open_Q, proposals = open_Q[~proven_Q], min(4 * proposals, self.rows)
        return scores_QK, rows_QK

    def _round(self, queries_QD: Floats, k: int, proposals: int) -> tuple[Floats, Ints, NDArray[np.bool_]]:
        """Search with so many proposals a query; the last value says for which queries the result is final."""
        on_gpu = self._on_gpu is not None and proposals <= GPU_PROPOSALS
        index = self._on_gpu if on_gpu else self._index
        guesses_QN, local_QN = index.search(np.ascontiguousarray(queries_QD), proposals)
        exact_QN = self._exact_scores(queries_QD, local_QN)
        scores_QK, rows_QK = in_order(exact_QN, local_QN, self._places_N, k)
        if proposals >= self.rows or not self._exact:
            return scores_QK, rows_QK, np.ones(len(queries_QD), dtype=np.bool_)
        # What was not proposed scores at most the lowest guess, plus the mean's share, plus the error of a guess.
        wide_QD = queries_QD.astype(np.float64)
        moved_Q = guesses_QN[:, -1] + wide_QD @ self._mean_D.astype(np.float64)
        unseen_Q = (moved_Q + self._error * np.linalg.norm(wide_QD, axis=-1)).astype(np.float32)
        return scores_QK, rows_QK, unseen_Q < scores_QK[:, -1]

    def _exact_scores(self, queries_QD: Floats, local_QN: Ints) -> Floats:
        """Inner products in float64, rounded to float32; -inf where a row is -1."""
        scores_QN = np.empty(local_QN.shape, dtype=np.float32)
        wide_QD = queries_QD.astype(np.float64)
        few = max(1, SCORED // local_QN.shape[1])

        def score(at: int) -> None:
            part = slice(at, at + few)
            pairs_QN = self._embeddings.inner(wide_QD[part], np.maximum(local_QN[part], 0))
            scores_QN[part] = np.where(local_QN[part] < 0, -np.inf, pairs_QN)

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(score, range(0, len(local_QN), few)))
        return scores_QN
