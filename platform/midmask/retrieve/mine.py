"""The mining step: hard negatives drawn from a split's ranked list; the search itself is a step of its own."""

import gzip
import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import Config, runtime
from midmask.retrieve import negatives, ranked
from midmask.retrieve.selection import judged_queries

log = logging.getLogger(__name__)


class MineConfig(Config):
    """How hard negatives are mined."""

    split: str = Field("train", description="whose queries get negatives")
    depth: int = Field(200, ge=1, le=100_000, description="passages ranked for each query")
    min_rank: int = Field(1, ge=1, description="best rank a negative may have, counted from 1 with the positives")
    max_rank: int | None = Field(None, ge=1, description="worst rank a negative may have; none: depth")
    per_query: int = Field(30, ge=1, le=10_000, description="negatives a query, drawn from the allowed ranks")
    seed: int = Field(0, ge=0, description="of the draw")
    max_queries: int | None = Field(None, ge=1, description="queries, the first by a hash of their id; none: all")
    index: str = Field("Flat", description="faiss factory string; Flat is exact")
    query_length: int | None = Field(None, ge=4, description="tokens a query is cut to; none: as tokenised")
    passage_length: int | None = Field(None, ge=8, description="tokens a passage is cut to; none: as tokenised")
    actors: int = runtime(1, "processes that the corpus is sharded over, on a cluster", ge=1)
    threads: int = runtime(1, "threads of each process", ge=1)

    @model_validator(mode="after")
    def _ranks_lie_within_the_depth(self) -> "MineConfig":
        last = self.depth if self.max_rank is None else self.max_rank
        if not self.min_rank <= last <= self.depth:
            raise UserError(
                f"min_rank = {self.min_rank}, max_rank = {self.max_rank}, depth = {self.depth}: "
                "wanted is min_rank <= max_rank <= depth"
            )
        return self

    def choice(self) -> negatives.Choice:
        return negatives.Choice(self.per_query, self.min_rank, self.max_rank or self.depth, self.seed)


def mine(config: MineConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step; inputs ranked (an artifact with `ranked/SPLIT.parquet`), corpus.

    Writes `negatives.parquet` (query_id, doc_id, rank, score, source) and `negatives.jsonl.gz`.

    Raises:
        UserError: for a split without relevant passages, or one that was not ranked.
    """
    source = str(inputs["ranked"].result.get("source", inputs["ranked"].record.get("step")))
    known = negatives.known_of(inputs["corpus"])
    query_ids = judged_queries(inputs["corpus"], config.split, judged="relevant", limit=config.max_queries)
    wanted = pa.array(query_ids, pa.string())
    chosen: list[pa.Table] = []
    for table in ranked.blocks(ranked.of_split(inputs["ranked"].place, config.split)):
        table = table.filter(pc.is_in(table["query_id"], value_set=wanted))
        chosen.append(negatives.choose(table, known, config.choice(), source))
    table = pa.concat_tables(chosen)
    with (out / "negatives.parquet").writing() as stream:
        pq.write_table(table, stream, compression="zstd")
    with (
        (out / "negatives.jsonl.gz").writing() as stream,
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed,
    ):
        for line in negatives.jsonl_lines(table, known.positives):
            packed.write(line.encode())
    counts = negatives.shortfall(table, query_ids, config.per_query)
    if counts["queries_short"]:
        log.warning("%d queries have fewer than %d negatives", counts["queries_short"], config.per_query)
    return {"queries": len(query_ids), "negatives": len(table), **counts, "source": source}
