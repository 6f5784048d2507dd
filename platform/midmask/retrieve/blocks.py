"""Blocks of texts: the row groups of Parquet files of token rows, the unit of encoding and of search.

A block can be worked on by any process in any order, and what is made of it lies in files named after its number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from midmask.artifact import Place

QUERY_BLOCK = 1024
"""Queries of a block; passages come in the row groups of their tokens artifact, 2,048 each."""

SELECTION = "selection.parquet"
"""The queries that an encoding is of, among its files."""


@dataclass(frozen=True)
class Block:
    """Row group `group` of a file: of all texts in order, those from `start`, `rows` of them."""

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
    found: list[Block] = []
    start = 0
    for file in files:
        with file.reading() as stream:
            metadata = pq.ParquetFile(stream).metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        for group, rows in enumerate(sizes):
            found.append(Block(len(found), file, group, start, rows))
            start += rows
    return found


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


def done_in_turn(do: Callable[[int], object], blocks: int) -> Iterator[int]:
    """The number of each block, as soon as it is done, in this process."""
    for block in range(blocks):
        do(block)
        yield block
