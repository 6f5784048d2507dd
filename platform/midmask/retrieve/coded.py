"""Dense search by the codes of a faiss index alone: nothing else of the passages is read or held."""

from typing import Any

import numpy as np
import pyarrow as pa

from midmask.arrays import Floats, Ints
from midmask.errors import UserError
from midmask.retrieve.best import in_order, places_of
from midmask.retrieve.dense import load_faiss
from midmask.retrieve.pairs import check_finite


class CodedShard:
    """All passages of a corpus, ranked by the scores of an index (SQ, PQ, or any other), in float32.

    A compressed index then takes the memory of its codes. Scores are those of the compressed vectors.

    Args:
        index: a faiss index of all passages.
        doc_ids: their ids, N strings; equal scores rank by them.
        threads: threads of a search, set explicitly since Ray sets OMP_NUM_THREADS.

    Raises:
        UserError: if the index is of another number of passages.
    """

    def __init__(self, index: Any, doc_ids: pa.ChunkedArray, *, threads: int = 1) -> None:
        if index.ntotal != len(doc_ids):
            raise UserError(
                f"an index of {index.ntotal} vectors for {len(doc_ids)} passages; delete it and build it again"
            )
        self.doc_ids = doc_ids
        self._index = index
        self._threads = threads
        self._places_N = places_of(doc_ids)

    def search(self, queries_QD: Floats, k: int) -> tuple[Floats, Ints]:
        """The best min(k, N) passages of each query: scores float32 and corpus rows int64, both [Q, min(k, N)].

        Ordered by score descending, then document id ascending. Where the index finds fewer, rows are -1 and scores
        -inf at the end.
        """
        check_finite(queries_QD)
        load_faiss().omp_set_num_threads(self._threads)
        k = min(k, len(self.doc_ids))
        scores_QK, rows_QK = self._index.search(np.ascontiguousarray(queries_QD), k)
        return in_order(np.where(rows_QK < 0, np.float32(-np.inf), scores_QK), rows_QK, self._places_N, k)
