"""Passages of a prepared corpus by row number or by document id."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.artifact import Place
from midmask.retrieve.blocks import Block, blocks_in

GROUPS_KEPT = 32
"""Row groups that stay in memory, of 2,048 passages each."""


class StoredPassages:
    """Titles and texts of a corpus artifact. Row groups are read when they are asked for; the last 32 are kept.

    Args:
        corpus: folder of the artifact.
    """

    def __init__(self, corpus: Place) -> None:
        self._docs = corpus / "docs"
        self._read_group = lru_cache(GROUPS_KEPT)(_read_group)

    @cached_property
    def doc_ids(self) -> pa.ChunkedArray:
        """The ids of all passages in row order."""
        return pa.chunked_array([block.read(["doc_id"])["doc_id"].combine_chunks() for block in self._blocks])

    def row(self, number: int) -> tuple[str, str, str]:
        """Document id, title and text of a row; only its row group is read."""
        block = self._blocks[bisect_right(self._blocks, number, key=lambda one: one.start) - 1]
        own = self._read_group(block).slice(number - block.start, 1).to_pylist()[0]
        return own["doc_id"], own["title"] or "", own["text"]

    def rows(self, start: int, stop: int) -> pa.Table:
        """Document ids, titles and texts of the rows `start` .. `stop`, at least one; a title may be absent."""
        own = [block for block in self._blocks if block.start < stop and start < block.start + block.rows]
        groups = pa.concat_tables([self._read_group(block) for block in own])
        return groups.slice(start - own[0].start, stop - start)

    def find(self, doc_ids: Sequence[str]) -> dict[str, tuple[str, str, str]]:
        """Document id -> (document id, title, text), in the order given; ids that the corpus lacks are left out."""
        wanted = pa.array(doc_ids, pa.string())
        rows = np.flatnonzero(pc.is_in(self.doc_ids, value_set=wanted).to_numpy())
        found = {passage[0]: passage for passage in map(self.row, rows.tolist())}
        return {doc_id: found[doc_id] for doc_id in doc_ids if doc_id in found}

    @cached_property
    def _blocks(self) -> list[Block]:
        return blocks_in([self._docs / name for name in self._docs.names()])


def _read_group(block: Block) -> pa.Table:
    return block.read(["doc_id", "title", "text"])
