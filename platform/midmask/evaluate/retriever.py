"""The evaluation step: full-corpus search on a split, measures per query, the ranked list kept."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from midmask.artifact import Artifact, Place
from midmask.errors import UserError
from midmask.evaluate import measures
from midmask.identity import Config, runtime
from midmask.retrieve import ranked
from midmask.retrieve.search import SplitSearch, model_folder, search_split
from midmask.retrieve.selection import fixed_sample, read_qrels

log = logging.getLogger(__name__)


class EvaluateConfig(Config):
    """Search of a whole corpus for a split's queries, and its measures."""

    split: str = Field("dev", description="whose queries are searched; selection looks at dev only")
    depth: int = Field(100, ge=1, le=100_000, description="passages ranked for each query")
    measures: tuple[str, ...] = Field((), description="ir-measures names such as nDCG@10; none: the usual ones")
    max_queries: int | None = Field(None, ge=1, description="queries, the first by a hash of their id; none: all")
    index: str = Field("Flat", description="faiss factory string; Flat is exact")
    query_length: int | None = Field(None, ge=4, description="tokens a query is cut to; none: as tokenised")
    passage_length: int | None = Field(None, ge=8, description="tokens a passage is cut to; none: as tokenised")
    threads: int = runtime(1, "threads of the search", ge=1)

    @field_validator("measures")
    @classmethod
    def _measures_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        measures.parse(names)
        return names


def evaluate_retriever(config: EvaluateConfig, inputs: Mapping[str, Artifact], out: Place) -> dict[str, Any]:
    """The step. Inputs: corpus, and model and tokens, or `ranked` (an artifact with `ranked/SPLIT.parquet`, as BM25's).

    Writes `per_query/CORPUS.SPLIT.parquet` (query_id, measure, value), `runs/CORPUS.SPLIT.trec.gz`, `ranked.parquet`.

    Returns:
        corpus, split, split_made_here, measures (name -> mean), queries, without_results, unjudged, seconds.

    Raises:
        UserError: for an unknown split or measure.
    """
    started = time.perf_counter()
    found = _listed(config, inputs) if "ranked" in inputs else _searched(config, inputs, out)
    qrels = _judged_sample(config, inputs["corpus"])
    names = config.measures or measures.default_measures(inputs["corpus"].result["passages"], config.depth)
    per_query = measures.evaluate(found, qrels, config.split, names)
    covered = measures.coverage(found, qrels, config.split)
    if covered["without_results"]:
        log.warning("%d of %d queries have no result and score 0", covered["without_results"], covered["queries"])
    corpus = inputs["corpus"].result
    name = f"{corpus['name']}.{config.split}"
    ranked.write(out / "ranked.parquet", [found])
    ranked.write_trec(out / "runs" / f"{name}.trec.gz", found, tag="midmask")
    with (out / "per_query" / f"{name}.parquet").writing() as stream:
        pq.write_table(per_query, stream, compression="zstd")
    for name in ("partial", "embeddings", "query_embeddings", "selection.parquet"):
        (out / name).delete()
    return {
        "corpus": corpus["name"],
        "split": config.split,
        "split_made_here": bool(corpus.get("split_made_here")),
        "measures": measures.aggregate(per_query),
        **covered,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _searched(config: EvaluateConfig, inputs: Mapping[str, Artifact], out: Place) -> pa.Table:
    return search_split(
        SplitSearch(
            model=model_folder(inputs["model"]),
            tokens=inputs["tokens"],
            corpus=inputs["corpus"],
            out=out,
            split=config.split,
            depth=config.depth,
            limit=config.max_queries,
            query_length=config.query_length,
            passage_length=config.passage_length,
            index=config.index,
            threads=config.threads,
        )
    )


def _listed(config: EvaluateConfig, inputs: Mapping[str, Artifact]) -> pa.Table:
    """The split's list in a finished ranking, cut to the depth and to the sample of queries."""
    lists = inputs["ranked"].place / "ranked"
    if f"{config.split}.parquet" not in lists.names():
        known = ", ".join(name.removesuffix(".parquet") for name in lists.names())
        raise UserError(f"{lists}: no ranking of split {config.split!r}. Known: {known}.")
    found = ranked.read(lists / f"{config.split}.parquet")
    judged = pc.unique(_judged_sample(config, inputs["corpus"])["query_id"])
    return found.filter(
        pc.and_(pc.less_equal(found["rank"], config.depth), pc.is_in(found["query_id"], value_set=judged))
    )


def _judged_sample(config: EvaluateConfig, corpus: Artifact) -> pa.Table:
    """The judgements of the split, of the sampled queries only."""
    qrels = read_qrels(corpus)
    if config.max_queries is None:
        return qrels
    within = qrels.filter(pc.equal(qrels["split"], config.split))
    kept = fixed_sample(pc.unique(within["query_id"]).to_pylist(), config.max_queries)
    return within.filter(pc.is_in(within["query_id"], value_set=pa.array(kept, pa.string())))
