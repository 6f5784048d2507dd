"""Dense search over one shard of passages: faiss proposes, float64 decides. The only importer of faiss.

A float32 matrix product gives the same pair different last bits in matrices of different shape, so a ranking by it
would depend on the number of shards. Here faiss only proposes candidates. Their final score is the inner product in
float64, computed pair by pair and rounded to float32, the same wherever the pair is met. For a flat index the result is
proven exact: if the error bound of the float32 scores leaves room for a passage that was not proposed, more are asked
for.
"""

import importlib.metadata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from midmask.artifact import Place
from midmask.errors import UserError

MARGIN = 32
"""Candidates asked for beyond k at first."""

PAIRS = 1 << 22
"""Proposed pairs held at once: bounds the memory of a search whose scores lie so close that many must be proposed."""

GATHERED = 4096
"""Vectors copied at once for exact scoring."""

TRAINING_ROWS = 262_144
"""Passages of a shard that a trained index (IVF, PQ) learns from, from the first."""

GPU_BUILDS = ("faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12", "faiss-gpu-cuvs")

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def check_faiss() -> None:
    """Exactly one build of faiss must be installed: two of them overwrite each other's files.

    Raises:
        UserError: if there is none, or more than one.
    """
    found = [name for name in ("faiss-cpu", *GPU_BUILDS) if _installed(name)]
    if not found:
        raise UserError("faiss is not installed: pip install 'midmask[cpu]', or 'midmask[gpu]' where there is a GPU")
    if len(found) > 1:
        raise UserError(
            f"{' and '.join(found)} are both installed and overwrite each other; pip uninstall -y {' '.join(found)}, "
            "then pip install one of 'midmask[cpu]' and 'midmask[gpu]'"
        )


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def load_vectors(place: Place) -> Floats:
    """A block of embeddings: memory-mapped where it is a local file, read otherwise."""
    if place.is_path:
        return np.load(place.uri, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    with place.reading() as stream:
        return np.load(stream, allow_pickle=False)  # type: ignore[no-any-return]


class DenseShard:
    """The passages `first` .. `first + N` of a corpus, searchable.

    Args:
        vectors: their embeddings, float32 [n, D] blocks in row order.
        doc_ids: their ids, N strings; equal scores rank by them.
        first: the corpus row of the first passage.
        factory: a faiss factory string; "Flat" is exact, others (IVF, PQ, HNSW) find approximately and score exactly.
        threads: threads of a search, set explicitly since Ray sets OMP_NUM_THREADS.

    Raises:
        UserError: if faiss is missing or does not know the factory string.
    """

    def __init__(
        self,
        vectors: Sequence[Floats],
        doc_ids: pa.ChunkedArray,
        *,
        first: int = 0,
        factory: str = "Flat",
        threads: int = 1,
    ) -> None:
        check_faiss()
        import faiss

        self._faiss = faiss
        faiss.omp_set_num_threads(threads)
        self._threads = threads
        self._first = first
        self.doc_ids = doc_ids
        self._index = _build(faiss, vectors, factory)
        self.exact = isinstance(self._index, faiss.IndexFlat)
        self.rows, width = self._index.ntotal, self._index.d
        if self.exact:
            # The index's own storage; a second copy of the shard is not kept.
            vectors = [faiss.rev_swig_ptr(self._index.get_xb(), self.rows * width).reshape(self.rows, width)]
        self._vectors = list(vectors)
        self._starts = np.cumsum([0, *(len(block) for block in vectors)])
        self._place_of_id = np.empty(self.rows, dtype=np.int64)
        self._place_of_id[pc.sort_indices(doc_ids).to_numpy()] = np.arange(self.rows)
        longest = max((float(np.square(block, dtype=np.float64).sum(-1).max()) for block in self._vectors), default=0.0)
        # Higham 2002, (3.5): |fl(x·y) - x·y| <= D u / (1 - D u) · |x|·|y| for any order of summation; u = 2^-24.
        self._error = np.sqrt(longest) * width * 2.0**-24 / (1 - width * 2.0**-24)

    def search(self, queries_QD: Floats, k: int) -> tuple[Floats, Ints]:
        """The best min(k, N) passages of each query: scores float32 and corpus rows int64, both [Q, min(k, N)].

        Ordered by score descending, then document id ascending. Where an approximate index finds fewer, rows are -1 and
        scores -inf at the end.
        """
        k = min(k, self.rows)
        scores_QK = np.full((len(queries_QD), k), -np.inf, dtype=np.float32)
        rows_QK = np.full((len(queries_QD), k), -1, dtype=np.int64)
        self._faiss.omp_set_num_threads(self._threads)
        open_Q, proposals = np.arange(len(queries_QD)), min(k + MARGIN, self.rows)
        while len(open_Q):
            proven_Q = np.empty(len(open_Q), dtype=np.bool_)
            few = max(1, PAIRS // proposals)
            for at in range(0, len(open_Q), few):
                some = open_Q[at : at + few]
                scores_QK[some], rows_QK[some], proven_Q[at : at + few] = self._round(queries_QD[some], k, proposals)
            open_Q, proposals = open_Q[~proven_Q], min(4 * proposals, self.rows)
        rows_QK[rows_QK >= 0] += self._first
        return scores_QK, rows_QK

    def _round(self, queries_QD: Floats, k: int, proposals: int) -> tuple[Floats, Ints, NDArray[np.bool_]]:
        """Search with so many proposals a query; the last value says for which queries the result is final."""
        guesses_QN, local_QN = self._index.search(np.ascontiguousarray(queries_QD), proposals)
        exact_QN = self._exact_scores(queries_QD, local_QN)
        at_QN = np.lexsort((self._place_of_id[local_QN], -exact_QN), axis=-1)[:, :k]
        scores_QK = np.take_along_axis(exact_QN, at_QN, axis=-1)
        rows_QK = np.where(np.isneginf(scores_QK), -1, np.take_along_axis(local_QN, at_QN, axis=-1))
        if proposals >= self.rows or not self.exact:
            return scores_QK, rows_QK, np.ones(len(queries_QD), dtype=np.bool_)
        # What was not proposed scores at most the lowest guess plus the error of a guess.
        error_Q = self._error * np.linalg.norm(queries_QD.astype(np.float64), axis=-1)
        unseen_Q = (guesses_QN[:, -1].astype(np.float64) + error_Q).astype(np.float32)
        return scores_QK, rows_QK, unseen_Q < scores_QK[:, -1]

    def _exact_scores(self, queries_QD: Floats, local_QN: Ints) -> Floats:
        """Inner products in float64, rounded to float32; -inf where a row is -1."""
        scores_QN = np.empty(local_QN.shape, dtype=np.float32)

        def score(query: int) -> None:
            query_D = queries_QD[query].astype(np.float64)
            for at in range(0, local_QN.shape[1], GATHERED):
                rows_N = local_QN[query, at : at + GATHERED]
                # vecdot is one dot product of length D a row, so a pair's value knows nothing of its neighbours.
                pairs_N = np.vecdot(self._gather(np.maximum(rows_N, 0)), query_D)
                scores_QN[query, at : at + GATHERED] = np.where(rows_N < 0, -np.inf, pairs_N)

        if self._threads == 1:
            for query in range(len(local_QN)):
                score(query)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(score, range(len(local_QN)), chunksize=32))
        return scores_QN

    def _gather(self, rows_N: Ints) -> NDArray[np.float64]:
        if len(self._vectors) == 1:
            return self._vectors[0].take(rows_N, axis=0).astype(np.float64)
        vectors_ND = np.empty((len(rows_N), self._vectors[0].shape[1]), dtype=np.float64)
        block_N = np.searchsorted(self._starts, rows_N, side="right") - 1
        for block in np.unique(block_N):
            mine = block_N == block
            vectors_ND[mine] = self._vectors[block][rows_N[mine] - self._starts[block]]
        return vectors_ND


def _build(faiss: Any, vectors: Sequence[Floats], factory: str) -> Any:
    width = vectors[0].shape[1]
    try:
        index = faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(
            f"index = {factory!r}: faiss knows no such index for {width} dimensions ({reason}); "
            "use Flat, IVF256,Flat or HNSW32"
        ) from None
    if not index.is_trained:
        index.train(_first_rows(vectors, TRAINING_ROWS))
    for block in vectors:
        index.add(np.ascontiguousarray(block))
    return index


def _first_rows(vectors: Sequence[Floats], wanted: int) -> Floats:
    chosen: list[Floats] = []
    for block in vectors:
        chosen.append(block[: wanted - sum(map(len, chosen))])
    return np.ascontiguousarray(np.concatenate(chosen))
