"""Searches in units, each of some passages and a block of queries, that can be done anywhere and in any order.

Every unit leaves a file in `partial/`; a unit whose file is there is not done again, so a killed search goes on. One
process runs all units (`search_alone`), or `backend.pool` deals them out to actors.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from midmask.core.arrays import Floats, Ints
from midmask.retrieve import ranked
from midmask.retrieve.best import Neighbours, in_order, places_of
from midmask.retrieve.blocks import Block
from midmask.store.place import Place


class UnitSearch(ABC):
    """A search's config and inputs, as plain data that can be sent to any node. A shard is a range of what `shards`
    cuts.
    """

    config: Any  # with a depth
    out: Place

    @abstractmethod
    def begin(self) -> int:
        """Checks the inputs and returns the number of query blocks."""

    @abstractmethod
    def shards(self, count: int) -> list[range]:
        """The passages cut into at most `count` contiguous ranges of nearly equal size."""

    @abstractmethod
    def open(self, shard: range) -> Any: ...

    @abstractmethod
    def prepare(self, shard: Any, number: int) -> Callable[[], Neighbours]:
        """The search of an opened shard for a block of queries, which are read before the clock runs; rows are the
        corpus's.
        """

    @abstractmethod
    def finish(self, shards: Sequence[range], searched: Iterable[int]) -> dict[str, Any]:
        """Writes the ranked lists from the partial results, which are deleted, and returns the step's result.

        Args:
            searched: all query blocks in order, each when every shard has searched it.
        """

    @property
    @abstractmethod
    def split(self) -> str: ...

    @property
    @abstractmethod
    def query_blocks(self) -> list[Block]: ...

    @property
    @abstractmethod
    def doc_ids(self) -> pa.LargeStringArray:
        """Of all passages, which may take more than 2 GiB."""

    def partial(self, shard: range, number: int) -> Place:
        """The results of a unit; named by what the shard has, since a resumed run may cut other shards."""
        return self.out / "partial" / f"{shard.start:05d}-{shard.stop:05d}.{number:05d}.npz"

    def write_ranked(self, shards: Sequence[range], searched: Iterable[int]) -> tuple[Place, int]:
        """Writes the ranked list, one query block after the other; returns the file and its number of rows."""
        place = self.out / "ranked" / f"{self.split}.parquet"
        return place, ranked.write(place, self._merged(shards, searched))

    def _merged(self, shards: Sequence[range], searched: Iterable[int]) -> Iterator[pa.Table]:
        for number in searched:
            parts = [read_neighbours(self.partial(shard, number))[:2] for shard in shards]
            results = merge(parts, self._places_N, self.config.depth)
            yield as_table(results, self.query_blocks[number].read(["query_id"])["query_id"], self.doc_ids)

    @cached_property
    def _places_N(self) -> Ints:
        return places_of(self.doc_ids)


class SearchWorker:
    """Searches one shard, which is opened when it is first asked for. The same class works in a loop and as a Ray
    actor.
    """

    def __init__(self, work: UnitSearch, shard: range) -> None:
        self._work, self._range = work, shard

    @cached_property
    def _shard(self) -> Any:
        return self._work.open(self._range)

    def search(self, number: int) -> int:
        """Writes the shard's results for a query block; returns 1 if they were missing."""
        target = self._work.partial(self._range, number)
        if target.exists():
            return 0
        search = self._work.prepare(self._shard, number)
        started = time.perf_counter()
        neighbours = search()
        write_neighbours(target, neighbours, time.perf_counter() - started)
        return 1


def search_alone(work: UnitSearch, parts: int = 1) -> dict[str, Any]:
    """Searches the parts of a corpus one after the other, in this process, which holds one of them."""
    blocks = range(work.begin())
    shards = work.shards(parts)
    for shard in shards:
        worker = SearchWorker(work, shard)
        for number in blocks:
            worker.search(number)
    return work.finish(shards, blocks)


def write_neighbours(place: Place, neighbours: Neighbours, seconds: float) -> None:
    """Writes a shard's results for a block of queries, and the seconds of the search."""
    with place.writing() as stream:
        np.savez(stream, scores=neighbours[0], rows=neighbours[1], seconds=np.float64(seconds))


def read_neighbours(place: Place) -> tuple[Floats, Ints, float]:
    """A shard's results for a block of queries, and the seconds of the search."""
    with place.reading() as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays["scores"], arrays["rows"], float(arrays["seconds"])


def merge(parts: Sequence[Neighbours], places_N: Ints, depth: int) -> Neighbours:
    """The best `depth` of each query over the shards' lists; their order does not matter.

    Args:
        places_N: what equal scores are compared by, for every row of the corpus.
    """
    scores_QK, rows_QK = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
    return in_order(scores_QK, rows_QK, places_N, depth)


def as_table(neighbours: Neighbours, query_ids: pa.ChunkedArray, doc_ids: pa.Array) -> pa.Table:
    """The ranked list of some queries, in their order.

    Args:
        doc_ids: of every row of the corpus.
    """
    scores_QK, rows_QK = neighbours
    filled_QK = rows_QK >= 0
    query = np.repeat(np.arange(len(rows_QK)), filled_QK.sum(axis=1))
    return pa.table(
        {
            "query_id": query_ids.take(pa.array(query)),
            "doc_id": doc_ids.take(pa.array(rows_QK[filled_QK])),
            "score": scores_QK[filled_QK],
            "rank": pa.array(np.cumsum(filled_QK, axis=1)[filled_QK].astype(np.int32)),
        }
    )
