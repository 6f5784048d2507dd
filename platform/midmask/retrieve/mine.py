"""The mining step: rank the corpus for a split's queries with an encoder, then draw hard negatives from the ranking."""

import gzip
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.identity import Config, runtime
from midmask.retrieve import negatives, ranked
from midmask.retrieve.search import SplitSearch, model_folder, run_here

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


def search_of(config: MineConfig, inputs: Mapping[str, Artifact], out: Place) -> SplitSearch:
    """What a mining run searches."""
    return SplitSearch(
        model=model_folder(inputs["model"]),
        tokens=inputs["tokens"],
        corpus=inputs["corpus"],
        out=out,
        split=config.split,
        depth=config.depth,
        judged="relevant",
        limit=config.max_queries,
        query_length=config.query_length,
        passage_length=config.passage_length,
        index=config.index,
        threads=config.threads,
    )


def mine(config: MineConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The one-process step; inputs model, tokens, corpus.

    Writes `ranked.parquet`, `negatives.parquet` (query_id, doc_id, rank, score, source) and `negatives.jsonl.gz`.

    Raises:
        UserError: for a split without relevant passages, an unknown index, or vectors that are not finite.
    """
    search = search_of(config, inputs, out)
    return finish(config, inputs, search, lambda: run_here(search))


def finish(
    config: MineConfig,
    inputs: Mapping[str, Artifact],
    search: SplitSearch,
    ranking: Callable[[], Iterable[pa.Table]],
) -> dict[str, Any]:
    """Writes the ranking, one block of queries at a time, and the negatives drawn from it; returns the counts."""
    out = search.out
    source = f"dense-{inputs['model'].fingerprint}"
    known = negatives.known_of(inputs["corpus"])
    chosen: list[pa.Table] = []

    def draw() -> Iterator[pa.Table]:
        for table in ranking():
            chosen.append(negatives.choose(table, known, config.choice(), source))
            yield table

    rows = ranked.write(out / "ranked.parquet", draw())
    table = pa.concat_tables(chosen)
    with (out / "negatives.parquet").writing() as stream:
        pq.write_table(table, stream, compression="zstd")
    with (
        (out / "negatives.jsonl.gz").writing() as stream,
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed,
    ):
        for line in negatives.jsonl_lines(table, known.positives):
            packed.write(line.encode())
    query_ids = [name for block in range(search.select()) for name in search.selected(block)["query_id"].to_pylist()]
    counts = negatives.shortfall(table, query_ids, config.per_query)
    if counts["queries_short"]:
        log.warning("%d queries have fewer than %d negatives", counts["queries_short"], config.per_query)
    (out / "partial").delete()
    return {"queries": len(query_ids), "ranked": rows, "negatives": len(table), **counts, "source": source}
