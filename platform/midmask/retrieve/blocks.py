"""Token rows and passages in Parquet files: by blocks, the unit of encoding and search, or by row number and id.

A block, a row group, can be worked on by any process in any order, and what is made of it lies in files named after its
number.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.store.place import Place
from midmask.store.tables import read_metadata

QUERY_BLOCK = 1024
"""Queries of a block; passages come in the row groups of their tokens artifact, 2,048 each."""

SELECTION = "selection.parquet"
"""The queries that an encoding is of, among its files."""


@dataclass(frozen=True)
class Block:
    """Row group `group` of a file: `rows` texts, from number `start` of all texts in order."""

    index: int
    file: Place
    group: int
    start: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.index:05d}"

    def read(self, columns: Sequence[str]) -> pa.Table:
        with self.file.reading() as stream:
            return pq.ParquetFile(stream).read_row_group(self.group, columns=list(columns))


def blocks_in(files: Sequence[Place]) -> list[Block]:
    """All blocks of some files in row order, from the files' footers alone."""
    blocks: list[Block] = []
    start = 0
    for file in files:
        metadata = read_metadata(file)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        for group, rows in enumerate(sizes):
            blocks.append(Block(len(blocks), file, group, start, rows))
            start += rows
    return blocks


def passage_blocks(tokens: Place) -> list[Block]:
    """The passages of a tokens artifact."""
    return blocks_in([tokens / "passages" / name for name in (tokens / "passages").names()])


def ranges(blocks: int, count: int) -> list[range]:
    """Blocks 0 .. `blocks` cut into at most `count` contiguous ranges of nearly equal size, none empty."""
    count = min(count, blocks)
    edges = [blocks * part // count for part in range(count + 1)] if count else [0]
    return [range(start, stop) for start, stop in pairwise(edges)]


def token_rows(column: pa.ChunkedArray) -> list[NDArray[np.int32]]:
    """A list column as arrays that share its memory."""
    ids = column.combine_chunks()
    offsets = ids.offsets.to_numpy()
    values: NDArray[Any] = ids.values.to_numpy(zero_copy_only=False)
    return [values[start:end] for start, end in pairwise(offsets.tolist())]


def cut_row(ids: NDArray[Any], length: int | None) -> NDArray[Any]:
    """At most `length` ids, the last one ([SEP]) kept at the end; none: all."""
    return ids if length is None or len(ids) <= length else np.append(ids[: length - 1], ids[-1])


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
        block = self._blocks[bisect_right(self._blocks, number, key=lambda entry: entry.start) - 1]
        passage = self._read_group(block).slice(number - block.start, 1).to_pylist()[0]
        return passage["doc_id"], passage["title"] or "", passage["text"]

    def find(self, doc_ids: Sequence[str]) -> dict[str, tuple[str, str, str]]:
        """Document id -> (document id, title, text), in the order given; ids that the corpus lacks are left out."""
        ids = pa.array(doc_ids, pa.string())
        rows = np.flatnonzero(pc.is_in(self.doc_ids, value_set=ids).to_numpy())
        passages = {passage[0]: passage for passage in map(self.row, rows.tolist())}
        return {doc_id: passages[doc_id] for doc_id in doc_ids if doc_id in passages}

    @cached_property
    def _blocks(self) -> list[Block]:
        return blocks_in([self._docs / name for name in self._docs.names()])


def _read_group(block: Block) -> pa.Table:
    return block.read(["doc_id", "title", "text"])
