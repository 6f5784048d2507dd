"""The search step: the best passages for every query.

    encoded passages ─► shard ─┐
    encoded queries ─► block ──┴► search (shard, query block) ─► partial file ─► merge ─► ranked/SPLIT.parquet

A shard is a contiguous range of passage blocks with whatever views it has. The result has the layout of BM25's: both
are ranked lists to mine from and to evaluate.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from midmask.core.arrays import Ints
from midmask.core.config import Config, added, runtime
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.best import Neighbours, Shard
from midmask.retrieve.blocks import SELECTION, Block, blocks_in, passage_blocks, ranges
from midmask.retrieve.dense import DenseShard
from midmask.retrieve.index import IndexFields, measure_recall, open_index
from midmask.retrieve.late import LateShard
from midmask.retrieve.lexical import LexicalShard
from midmask.retrieve.sparse import stacked
from midmask.retrieve.units import UnitSearch, read_neighbours, search_alone
from midmask.retrieve.views import read_views, stored_size
from midmask.store.artifact import Artifact
from midmask.store.place import Place

log = logging.getLogger(__name__)


ALL = "all"


class PoolFields(Config):
    """Which passages are scored by token vectors; without effect on other vectors."""

    candidates: Literal["bm25", "all"] = added(
        "bm25", "late interaction: passages that are scored for a query: BM25's best, or all (small collections)"
    )
    pool: int = added(1000, "late interaction: BM25's passages that are scored for each query", ge=1, le=100_000)

    def check_pool(self, place: str, depth: int, *, late: bool) -> None:
        """Finds a pool that cannot be searched before anything is computed.

        Args:
            place: path of these fields, as typed (`evaluation`). depth: passages that are ranked for a query. late:
                whether token vectors are searched.

        Raises:
            UserError: if no token vectors are searched, or for a pool that is smaller than the depth.
        """
        for name in PoolFields.model_fields:
            usual = PoolFields.model_fields[name].default
            if not late and (value := getattr(self, name)) != usual:
                raise UserError(
                    f"{place}.{name} = {value}: it is of late interaction, and representation.tokens = none; leave it "
                    f"at {usual}, or use --protocol in_batch_late"
                )
        if late and self.candidates != ALL and self.pool < depth:
            raise UserError(
                f"{place}.pool = {self.pool} with {place}.depth = {depth}: no more passages can be ranked than are "
                f"scored; set {place}.pool={depth} or more, or {place}.candidates=all"
            )


class SearchConfig(IndexFields):
    """How a corpus is searched. With another index than Flat, the step `index` builds it."""

    depth: int = Field(100, ge=1, le=100_001, description="passages ranked for each query")
    views: Literal["all", "dense", "lexical"] = Field("all", description="what is scored of what was encoded")
    query_terms: int | None = Field(
        None, ge=1, description="words of a query's lexical view that count, the heaviest; none: all that were encoded"
    )
    passage_terms: int | None = Field(
        None, ge=1, description="the same of a passage; fewer than were encoded need no new encoding"
    )
    width: int | None = added(
        None, "first dimensions of the dense view that count, for an exact search; none: all", ge=1
    )
    threads: int = runtime(1, "threads of each process", ge=1)


def open_shard(
    encoded: Place,
    blocks: Sequence[Block],
    views: Sequence[str],
    config: SearchConfig,
    *,
    normalise: bool = False,
    index: Any = None,
) -> Shard:
    """The searchable form of some passage blocks. Dense and token vectors are mapped, lexical rows are unpacked into
    memory.

    Args:
        encoded: folder of the encoded passages. blocks: of their tokens artifact, contiguous.
        views: what is scored: "dense", "lexical" or both; or "late".
        normalise: whether dense vectors that are cut to the config's width have length 1 again.
        index: faiss's of the dense vectors of all passages, which finds approximately; none: the search is exact.
    """
    read = (read_views(encoded, block.name, views) for block in blocks)
    parts = [each.pruned(config.passage_terms).narrowed(config.width, normalise=normalise) for each in read]
    doc_ids, first, threads, rescore = _doc_ids_of(blocks), blocks[0].start, config.threads, config.rescore
    if "late" in views:
        return LateShard([part.tokens for part in parts], doc_ids, first=first, threads=threads)
    vectors = [part.vectors_ND for part in parts] if "dense" in views else []
    if "lexical" not in views:
        return DenseShard(vectors, doc_ids, index=index, rescore=rescore, first=first, threads=threads)
    rows = stacked([part.words for part in parts])
    return LexicalShard(rows, doc_ids, vectors=vectors, first=first, threads=threads)


def _doc_ids_of(blocks: Sequence[Block]) -> pa.ChunkedArray:
    """Ids of the passages of some blocks, in row order."""
    return pa.concat_tables([block.read(["doc_id"]) for block in blocks])["doc_id"]


@dataclass(frozen=True)
class Search(UnitSearch):
    """A search's config and inputs, as plain data that can be sent to any node. Inputs: passages and queries (both
    encoded), tokens; unless the search is exact, `index`, of the passages, and `exact`, the exact ranked list of a
    sample of the queries; `candidates`, ranked lists of the same queries, where only these are scored by token vectors.
    """

    config: SearchConfig
    inputs: Mapping[str, Artifact]
    out: Place
    started: float = field(default_factory=time.perf_counter, init=False, compare=False)

    def begin(self) -> int:
        """The number of query blocks.

        Raises:
            UserError: for a number of words where none are searched.
        """
        typed = {name: getattr(self.config, name) for name in ("query_terms", "passage_terms")}
        terms = ", ".join(f"{name} = {count}" for name, count in typed.items() if count is not None)
        if terms and "lexical" not in self.views:
            raise UserError(f"{terms}: no lexical view is searched; leave it at none")
        return len(self.query_blocks)

    @property
    def normalised(self) -> bool:
        """Whether dense vectors have length 1."""
        return bool(self.inputs["passages"].result.get("normalised", False))

    @cached_property
    def split(self) -> str:
        return str(self.inputs["queries"].result["split"])

    @property
    def views(self) -> tuple[str, ...]:
        """The views that are scored: "dense", "lexical", or both; or "late".

        Raises:
            UserError: for a view that was not encoded.
        """
        encoded = tuple(self.inputs["passages"].result["views"])
        views = encoded if self.config.views == "all" else (self.config.views,)
        if not set(views) <= set(encoded):
            raise UserError(f"views = {self.config.views}: the encoder gives {' and '.join(encoded)} vectors alone")
        return views

    @cached_property
    def blocks(self) -> list[Block]:
        return passage_blocks(self.inputs["tokens"].place)

    @cached_property
    def doc_ids(self) -> pa.LargeStringArray:
        return _doc_ids_of(self.blocks).cast(pa.large_string()).combine_chunks()

    @cached_property
    def query_blocks(self) -> list[Block]:
        return blocks_in([self.inputs["queries"].place / SELECTION])

    def shards(self, count: int) -> list[range]:
        """Passage blocks cut into at most `count` contiguous ranges of nearly equal size; an index is of all blocks."""
        return ranges(len(self.blocks), count if self.config.is_exact else 1)

    def open(self, shard: range) -> Shard:
        """The passages and their index."""
        index = None
        if not self.config.is_exact:
            index = open_index((self.inputs["index"].place / "index").local(), self.config, self.config.depth)
        blocks = [self.blocks[number] for number in shard]
        place = self.inputs["passages"].place
        return open_shard(place, blocks, self.views, self.config, normalise=self.normalised, index=index)

    def prepare(self, shard: Shard, number: int) -> Callable[[], Neighbours]:
        queries = read_views(self.inputs["queries"].place, self.query_blocks[number].name, self.views)
        candidates = self._candidates(number, shard.doc_ids)
        terms, width = self.config.query_terms, self.config.width
        counted = queries.pruned(terms).narrowed(width, normalise=self.normalised)
        return lambda: shard.search(counted, self.config.depth, candidates)

    def finish(self, shards: Sequence[range], searched: Iterable[int]) -> dict[str, Any]:
        """The counts, the bytes a passage that were searched, and the recall of an index."""
        place, rows = self.write_ranked(shards, searched)
        seconds = self._query_seconds(shards)
        (self.out / "partial").delete()
        queries, passages = (self.inputs[name].result["rows"] for name in ("queries", "passages"))
        slots = queries * min(self.config.depth, passages)
        if empty := slots - rows:
            log.warning("%d of %d result slots of %s are empty: fewer passages were found", empty, slots, self.split)
        return {
            "passages": passages,
            "source": f"{'hybrid' if len(self.views) > 1 else self.views[0]}-{self.inputs['passages'].result['model']}",
            "splits": {self.split: {"queries": queries, "ranked": rows, "empty_slots": empty}},
            "query_seconds": round(seconds, 6),
            "read": {side: self._read_to(side) for side in ("passages", "queries")},
            "bytes_per_passage": round(self._count_bytes() / passages, 2),
            **(
                {}
                if self.config.is_exact
                else {"recall": measure_recall(self._lists("exact"), place, self.config.depth)}
            ),
            "seconds": round(time.perf_counter() - self.started, 3),
        }

    def _read_to(self, side: str) -> dict[str, Any]:
        """The length to which passages or queries were read."""
        encoded = self.inputs[side].result
        return {name: encoded[name] for name in ("length", "cut_share", "titles") if name in encoded}

    def _lists(self, role: str) -> Place:
        """The split's ranked lists in an input."""
        return ranked.of_split(self.inputs[role].place, self.split)

    def _candidates(self, number: int, doc_ids: pa.ChunkedArray) -> list[Ints] | None:
        """For each query of a block the places of its candidates among the passages with these ids, ascending; none:
        all passages are scored.
        """
        if "candidates" not in self.inputs:
            return None
        query_ids = self.query_blocks[number].read(["query_id"])["query_id"].to_pylist()
        candidates = ranked.read_queries(self._lists("candidates"), query_ids, ["query_id", "doc_id"])
        query_N = pc.index_in(candidates["query_id"], value_set=pa.array(query_ids, pa.string()))
        large = pa.large_string()  # ids may take more than 2 GiB
        row_N = pc.index_in(candidates["doc_id"].cast(large), value_set=doc_ids.cast(large).combine_chunks())
        query_N, row_N = (column.filter(pc.is_valid(row_N)).to_numpy().astype(np.int64) for column in (query_N, row_N))
        order = np.lexsort((row_N, query_N))
        edges = np.searchsorted(query_N[order], np.arange(len(query_ids) + 1))
        return [row_N[order[start:stop]] for start, stop in pairwise(edges.tolist())]

    def _query_seconds(self, shards: Sequence[range]) -> float:
        """Seconds in which queries were searched: of each block, those of its slowest shard. Neither building nor
        opening an index counts.
        """
        blocks = range(len(self.query_blocks))
        return sum(max(read_neighbours(self.partial(shard, block))[2] for shard in shards) for block in blocks)

    def _count_bytes(self) -> int:
        """Bytes of the passages' files that are searched (these views, so many words of each), and of an index."""
        config, place = self.config, self.inputs["passages"].place
        stored = sum(
            stored_size(place, block.name, self.views, config.passage_terms, config.width) for block in self.blocks
        )
        return stored + (0 if config.is_exact else int(self.inputs["index"].result["bytes"]))


def search(config: SearchConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The one-process step: the whole corpus as one shard. Writes `ranked/SPLIT.parquet`."""
    return search_alone(Search(config, inputs, out))


PART = 64
"""Passage blocks that `search_in_parts` holds at once: 131,072 passages."""


def search_in_parts(config: SearchConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """An exact search for few queries that never holds the whole corpus. Writes the same as `search`; how large the
    parts are does not matter.
    """
    work = Search(config, inputs, out)
    return search_alone(work, -(-len(work.blocks) // PART))
