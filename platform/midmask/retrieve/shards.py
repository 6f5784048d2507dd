"""A range of encoded passages that is searched in one go, whatever views it has: dense, lexical or both, or token
vectors.

Shapes: Q queries, D dense width, K results of a query.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from midmask.artifact import Place
from midmask.retrieve.blocks import Block
from midmask.retrieve.coded import CodedShard
from midmask.retrieve.dense import DenseShard
from midmask.retrieve.hybrid import HybridShard
from midmask.retrieve.late import Candidates, LateShard
from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.merging import Neighbours
from midmask.retrieve.seismic import SeismicIndex, SeismicShard
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views, read_views

Shard = DenseShard | CodedShard | LexicalShard | SeismicShard | HybridShard | LateShard


def open_shard(
    encoded: Place,
    blocks: Sequence[Block],
    views: Sequence[str],
    *,
    terms: int | None = None,
    width: int | None = None,
    normalise: bool = False,
    index: Any = None,
    rescore: int = 1,
    threads: int = 1,
) -> Shard:
    """The searchable form of some passage blocks. Dense and token vectors are mapped, lexical rows are unpacked into
    memory.

    Args:
        encoded: folder of the encoded passages. blocks: of their tokens artifact, contiguous.
        views: what is scored: "dense", "lexical" or both; or "late".
        terms: words of a passage's lexical view that count, the heaviest; none: all that were encoded.
        width: first dimensions of the dense view that count; none: all. normalise: whether they have length 1 again.
        index: of all passages, which finds approximately: faiss's of their dense vectors, or Seismic's of their words;
            none: the search is exact.
        rescore: candidates of an index, for each passage that is ranked, that are scored again with the stored
            vectors; 0: none, and the vectors are not read.
    """
    if index is not None and rescore == 0:
        return CodedShard(index, doc_ids_of(blocks), threads=threads)
    read = (read_views(encoded, block.name, views) for block in blocks)
    parts = [each.pruned(terms).narrowed(width, normalise=normalise) for each in read]
    dense = [part.dense_ND for part in parts if part.dense_ND is not None]
    lexical = [part.lexical for part in parts if part.lexical is not None]
    doc_ids = doc_ids_of(blocks)
    first = blocks[0].start
    if late := [part.late for part in parts if part.late is not None]:
        return LateShard(late, doc_ids, first=first, threads=threads)
    if not lexical:
        return DenseShard(dense, doc_ids, index=index, rescore=rescore, first=first, threads=threads)
    rows = SparseRows.concat(lexical)
    if isinstance(index, SeismicIndex):
        return SeismicShard(rows, doc_ids, index, rescore=rescore, threads=threads)
    if not dense:
        return LexicalShard(rows, doc_ids, first=first, threads=threads)
    return HybridShard(dense, rows, doc_ids, index=index, rescore=rescore, first=first, threads=threads)


def doc_ids_of(blocks: Sequence[Block]) -> pa.ChunkedArray:
    """Ids of the passages of some blocks, in row order."""
    return pa.concat_tables([block.read(["doc_id"]) for block in blocks])["doc_id"]


def search_shard(shard: Shard, queries: Views, depth: int, candidates: Candidates | None = None) -> Neighbours:
    """Scores and corpus rows [Q, K] of each query's best `depth` passages, the best first.

    Args:
        candidates: for each query the corpus rows that are scored by token vectors; none: all, as for other views.

    Raises:
        ValueError: if the queries' views are not those of the passages.
    """
    if isinstance(shard, LateShard) and queries.late is not None:
        return shard.search(queries.late, depth, candidates)
    match shard, queries.dense_ND, queries.lexical:
        case DenseShard() | CodedShard(), np.ndarray() as dense_QD, None:
            return shard.search(np.asarray(dense_QD), depth)
        case LexicalShard() | SeismicShard(), None, SparseRows() as lexical:
            return shard.search(lexical, depth)
        case HybridShard(), np.ndarray() as dense_QD, SparseRows() as lexical:
            return shard.search(np.asarray(dense_QD), lexical, depth)
    raise ValueError("the queries' views are not those of the passages")
