"""What shards find, as files, and the ranked list of all of them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from midmask.arrays import Floats, Ints
from midmask.artifact import Place
from midmask.retrieve.best import in_order

Neighbours = tuple[Floats, Ints]
"""Scores and corpus rows [Q, K], the best first; -inf and -1 where fewer than K were found."""


def write_found(place: Place, found: Neighbours, seconds: float) -> None:
    """Writes a shard's results for a block of queries, and the seconds of the search."""
    with place.writing() as stream:
        np.savez(stream, scores=found[0], rows=found[1], seconds=np.float64(seconds))


def read_found(place: Place) -> Neighbours:
    with place.reading() as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays["scores"], arrays["rows"]


def read_seconds(place: Place) -> float:
    """How long the search of a written block took."""
    with place.reading() as stream, np.load(stream, allow_pickle=False) as arrays:
        return float(arrays["seconds"])


def merge(parts: Sequence[Neighbours], places_N: Ints, depth: int) -> Neighbours:
    """The best `depth` of each query over the shards' lists; their order does not matter.

    Args:
        places_N: what equal scores are compared by, for every row of the corpus.
    """
    scores_QK, rows_QK = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
    return in_order(scores_QK, rows_QK, places_N, depth)


def as_table(found: Neighbours, query_ids: pa.ChunkedArray, doc_ids: pa.Array) -> pa.Table:
    """The ranked list of some queries, in their order.

    Args:
        doc_ids: of every row of the corpus.
    """
    scores_QK, rows_QK = found
    found_QK = rows_QK >= 0
    query = np.repeat(np.arange(len(rows_QK)), found_QK.sum(axis=1))
    return pa.table(
        {
            "query_id": query_ids.take(pa.array(query)),
            "doc_id": doc_ids.take(pa.array(rows_QK[found_QK])),
            "score": scores_QK[found_QK],
            "rank": pa.array(np.cumsum(found_QK, axis=1)[found_QK].astype(np.int32)),
        }
    )
