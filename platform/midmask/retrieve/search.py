"""Full-corpus dense search of a split's queries, in units that can be done anywhere and in any order.

    select ─► encode query block j ─┐
    encode passage block i ─► shard ─┴► search (shard, query block) ─► partial file ─► merge ─► ranked list

Every unit leaves a file; a unit whose file is there is not done again, so a killed search goes on. A shard is a
contiguous range of passage blocks. One process runs all units in a loop (`search_split`); `cluster.pool` deals them out
to actors.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from midmask.artifact import Artifact, Place
from midmask.encoders.experts import saved_split
from midmask.encoders.pooling import is_normalised
from midmask.errors import UserError
from midmask.retrieve import ranked
from midmask.retrieve.dense import DenseShard, load_vectors
from midmask.retrieve.encode import (
    Block,
    Encoding,
    blocks_of,
    encode_passages,
    encode_queries,
    load_encoder,
    read_block,
)
from midmask.retrieve.selection import judged_queries
from midmask.vocabulary import Vocabulary

log = logging.getLogger(__name__)

QUERY_BLOCK = 1024
"""Queries of one unit of search; a change only invalidates unfinished searches."""


@dataclass(frozen=True)
class SplitSearch:
    """What is searched: plain data that travels to any node. Files lie under `out`.

    Args:
        model: folder of the encoder (Hugging Face, or sentence-transformers, whose normalisation is followed).
        judged: which queries of the split: "any" with a judgement, or with a "relevant" passage.
        limit: at most so many queries, the first by a hash of their id: a fixed sample.
        query_length, passage_length: tokens that rows are cut to; none: as tokenised.
        index: faiss factory string.
        threads: of each process that searches; changes no number.
    """

    model: Place
    tokens: Artifact
    corpus: Artifact
    out: Place
    split: str
    depth: int
    judged: Literal["any", "relevant"] = "any"
    limit: int | None = None
    query_length: int | None = None
    passage_length: int | None = None
    index: str = "Flat"
    threads: int = 1

    @cached_property
    def blocks(self) -> list[Block]:
        return blocks_of(self.tokens.place)

    def select(self) -> int:
        """Writes `selection.parquet` (query_id, ids), sorted by query id; returns the number of query blocks.

        Raises:
            UserError: if the split has no such query.
        """
        place = self.out / "selection.parquet"
        if not place.exists():
            wanted = judged_queries(self.corpus, self.split, judged=self.judged, limit=self.limit)
            with (self.tokens.place / "queries.parquet").reading() as stream:
                queries = pq.read_table(stream)
            queries = queries.filter(pc.is_in(queries["query_id"], value_set=pa.array(wanted, pa.string())))
            if len(queries) < len(wanted):
                raise UserError(
                    f"{self.tokens.place}: {len(wanted) - len(queries)} queries of split {self.split!r} are not among "
                    "the tokens; tokenise the corpus that the judgements belong to"
                )
            with place.writing() as stream:
                pq.write_table(queries.sort_by("query_id"), stream, row_group_size=QUERY_BLOCK)
        with place.reading() as stream:
            return int(pq.ParquetFile(stream).metadata.num_row_groups)

    def selected(self, block: int) -> pa.Table:
        """Query block `block`: query_id and ids."""
        with (self.out / "selection.parquet").reading() as stream:
            return pq.ParquetFile(stream).read_row_group(block)

    def query_vectors(self, block: int) -> Place:
        return self.out / "query_embeddings" / f"{block:05d}.npy"

    def partial(self, shard: range, block: int) -> Place:
        """The result of (shard, query block); named by passage blocks, since a resumed run may cut other shards."""
        return self.out / "partial" / f"{shard.start:05d}-{shard.stop:05d}.{block:05d}.parquet"

    def shards(self, count: int) -> list[range]:
        """Passage blocks cut into at most `count` contiguous ranges of nearly equal size."""
        if not self.blocks:
            raise UserError(f"{self.tokens.place} holds no passages to search")
        count = min(count, len(self.blocks))
        edges = [len(self.blocks) * part // count for part in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(edges)]

    def merged(self, shards: Sequence[range], blocks: int) -> Iterator[pa.Table]:
        """The ranked list, one query block after the other, from the partial results of all shards."""
        for block in range(blocks):
            yield merge([ranked.read(self.partial(shard, block)) for shard in shards], self.depth)


def merge(partials: Sequence[pa.Table], depth: int) -> pa.Table:
    """The best `depth` of each query over the shards' lists; their order does not matter."""
    return ranked.order(pa.concat_tables(partials), depth)


class ShardWorker:
    """Does the units of one shard; holds its encoders and index. The same class works in a loop and as a Ray actor."""

    def __init__(self, search: SplitSearch, shard: range) -> None:
        self._search = search
        self._shard = shard
        self._index: DenseShard | None = None

    @cached_property
    def _passage_encoder(self) -> Any:
        return load_encoder(self._search.model.local(), self._encoding.device)

    @cached_property
    def _query_encoder(self) -> Any:
        folder, device = self._search.model.local(), self._encoding.device
        return load_encoder(folder, device, "query") if saved_split(folder) else self._passage_encoder

    @cached_property
    def _encoding(self) -> Encoding:
        vocabulary = Vocabulary.of((self._search.tokens.place / "tokenizer").local())
        return Encoding(
            pad_id=vocabulary.pad_id,
            normalise=_normalises(self._search.model.local()),
            device="cuda" if torch.cuda.is_available() else "cpu",
            threads=self._search.threads,
        )

    def encode_queries(self, block: int) -> int:
        """Writes the vectors of a query block; returns 1 if they were missing."""
        target = self._search.query_vectors(block)
        if target.exists():
            return 0
        encoding = self._cut_to(self._search.query_length)
        _, vectors_QD = encode_queries(self._query_encoder, self._search.selected(block), encoding)
        with target.writing() as stream:
            np.save(stream, vectors_QD)
        return 1

    def encode_passages(self) -> int:
        """Writes the vectors of the shard's blocks; returns how many blocks were missing."""
        return sum(self.encode_block(block) for block in self._shard)

    def encode_block(self, block: int) -> int:
        """Writes the vectors of one passage block; returns 1 if they were missing."""
        search = self._search
        if (search.out / "embeddings" / search.blocks[block].file).exists():
            return 0
        encoding = self._cut_to(search.passage_length)
        return encode_passages(
            self._passage_encoder, search.tokens, search.out, encoding, blocks=[search.blocks[block]]
        )

    def _cut_to(self, length: int | None) -> Encoding:
        return Encoding(**{**vars(self._encoding), "max_length": length})

    def search(self, block: int) -> int:
        """Writes the shard's ranked list for a query block; returns the number of rows written, 0 if it was there."""
        target = self._search.partial(self._shard, block)
        if target.exists():
            return 0
        if self._index is None:
            self._index = self._open()
        vectors_QD = np.asarray(load_vectors(self._search.query_vectors(block)))
        scores_QK, rows_QK = self._index.search(vectors_QD, self._search.depth)
        found_QK = rows_QK >= 0
        query = np.repeat(np.arange(len(rows_QK)), found_QK.sum(axis=1))
        first = self._search.blocks[self._shard.start].start
        table = pa.table(
            {
                "query_id": self._search.selected(block)["query_id"].take(pa.array(query)),
                "doc_id": self._index.doc_ids.take(pa.array(rows_QK[found_QK] - first)),
                "score": scores_QK[found_QK],
                "rank": pa.array((np.cumsum(found_QK, axis=1)[found_QK]).astype(np.int32)),
            }
        )
        return ranked.write(target, [table])

    def _open(self) -> DenseShard:
        search = self._search
        blocks = [search.blocks[index] for index in self._shard]
        return DenseShard(
            [load_vectors(search.out / "embeddings" / block.file) for block in blocks],
            pa.concat_tables([read_block(search.tokens.place, block, ["doc_id"]) for block in blocks])["doc_id"],
            first=blocks[0].start,
            factory=search.index,
            threads=search.threads,
        )


def run_here(search: SplitSearch) -> Iterator[pa.Table]:
    """All units in this process, as one shard; yields the ranked list, one query block after the other."""
    blocks = search.select()
    (shard,) = search.shards(1)
    worker = ShardWorker(search, shard)
    worker.encode_passages()
    for block in range(blocks):
        worker.encode_queries(block)
        worker.search(block)
    yield from search.merged([shard], blocks)


def search_split(search: SplitSearch) -> pa.Table:
    """The ranked list of a split, searched in this process."""
    return pa.concat_tables(run_here(search))


def model_folder(model: Artifact) -> Place:
    """Where an artifact keeps its encoder: in `model/`, or in itself.

    Raises:
        UserError: if there is no model in either.
    """
    for place in (model.place / "model", model.place):
        if (place / "config.json").exists():
            return place
    raise UserError(f"{model.place} holds no encoder: config.json is missing; name the result of finetune or pretrain")


def _normalises(folder: Path) -> bool:
    """Whether the folder's sentence-transformers modules make unit vectors; a plain Hugging Face folder has none."""
    return (folder / "modules.json").exists() and is_normalised(folder)
