"""What a faiss index learns before vectors are added to it: the centres of its lists, and the codes of its parts."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from midmask.arrays import Floats
from midmask.errors import UserError, last_line
from midmask.randomness.texts import mix
from midmask.retrieve.dense import load_faiss

log = logging.getLogger(__name__)

TRAINING_ROWS = 262_144
"""Passages that a trained index (IVF, SQ8, PQ, OPQ) learns from: drawn from the whole collection by a hash of the row,
since collections are often sorted by topic or source.
"""

SAMPLE_KEY = 16
"""Of the hash that draws them."""


@dataclass(frozen=True)
class VectorBlocks:
    """Vectors in blocks, each read when it is needed: a collection's may be more than memory holds.

    lengths: rows of each block. read: the number of a block -> its vectors, float32 [n, D].
    """

    lengths: Sequence[int]
    read: Callable[[int], Floats]

    @classmethod
    def of(cls, *blocks: Floats) -> Self:
        """Blocks that are in memory."""
        return cls([len(block) for block in blocks], blocks.__getitem__)

    def __iter__(self) -> Iterator[Floats]:
        return map(self.read, range(len(self.lengths)))


def learn(index: Any, factory: str, vectors: VectorBlocks, wanted: int) -> None:
    """Trains an index. Where passages are few for its centres, one line says so; faiss says it for each part, hundreds
    of times for some indexes.

    Args:
        index: an empty faiss index. factory: its factory string, for messages. wanted: passages to learn from.

    Raises:
        UserError: for fewer passages than lists or codes.
    """
    rows = min(wanted, sum(vectors.lengths))
    few = 0
    for centres, clustering in _clusterings(index):
        few = max(few, centres * clustering.min_points_per_centroid)
        clustering.min_points_per_centroid = 1
    try:
        index.train(_sample_rows(vectors, wanted))
    except RuntimeError as error:
        raise UserError(
            f"index = {factory!r}: {rows} passages are too few to learn it ({last_line(error)}); use fewer lists, or "
            "Flat"
        ) from None
    if rows < few:
        log.warning("index = %s learns from %d passages; faiss advises at least %d", factory, rows, few)


def _clusterings(index: Any) -> Iterator[tuple[int, Any]]:
    """Number of centres and settings of each clustering that the training of an index makes."""
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        for number in range(index.chain.size()):
            rotation = faiss.downcast_VectorTransform(index.chain.at(number))
            if isinstance(rotation, faiss.OPQMatrix):
                rotation.pq = faiss.ProductQuantizer(rotation.d_out, rotation.M, 8)  # as it makes by itself
                rotation.pq.this.disown()  # borrowed by the rotation; it stays until the process ends
                yield rotation.pq.ksub, rotation.pq.cp
        yield from _clusterings(index.index)
        return
    if hasattr(index, "cp"):
        yield index.nlist, index.cp
    if hasattr(index, "pq"):
        yield index.pq.ksub, index.pq.cp


def _sample_rows(vectors: VectorBlocks, wanted: int) -> Floats:
    """So many of all vectors, those with the lowest hash of their row, in row order; all where there are no more."""
    starts = np.cumsum([0, *vectors.lengths])
    rows_N = np.arange(starts[-1])
    if wanted < len(rows_N):
        rows_N = np.sort(np.argpartition(mix(SAMPLE_KEY, rows_N), wanted)[:wanted])
    edges = np.searchsorted(rows_N, starts)
    parts = zip(vectors, starts.tolist(), pairwise(edges.tolist()), strict=False)
    return np.concatenate([np.asarray(block)[rows_N[low:high] - start] for block, start, (low, high) in parts])
