"""The evaluation step: from a split's ranked list to measures per query."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from midmask.artifact import Artifact, Place
from midmask.evaluate import measures
from midmask.identity import Config, runtime
from midmask.retrieve import ranked
from midmask.retrieve.selection import fixed_sample, read_qrels

log = logging.getLogger(__name__)


class EvaluateConfig(Config):
    """Search of a whole corpus for a split's queries, and its measures. What is about the search (index, lengths,
    threads) makes the encoding and search steps that come before (`recipes.plan`)."""

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
    """The step. Inputs: corpus, and `ranked`, an artifact with `ranked/SPLIT.parquet` (of a search, or BM25's).

    Writes `per_query/CORPUS.SPLIT.parquet` (query_id, measure, value) and the list it judged,
    `runs/CORPUS.SPLIT.trec.gz`.

    Returns:
        corpus, split, split_made_here, measures (name -> mean), queries, without_results, unjudged, seconds.

    Raises:
        UserError: for an unknown split or measure.
    """
    started = time.perf_counter()
    found = _listed(config, inputs)
    qrels = _judged_sample(config, inputs["corpus"])
    names = config.measures or measures.default_measures(inputs["corpus"].result["passages"], config.depth)
    per_query = measures.evaluate(found, qrels, config.split, names)
    covered = measures.coverage(found, qrels, config.split)
    if covered["without_results"]:
        log.warning("%d of %d queries have no result and score 0", covered["without_results"], covered["queries"])
    corpus = inputs["corpus"].result
    name = f"{corpus['name']}.{config.split}"
    ranked.write_trec(out / "runs" / f"{name}.trec.gz", found, tag="midmask")
    with (out / "per_query" / f"{name}.parquet").writing() as stream:
        pq.write_table(per_query, stream, compression="zstd")
    return {
        "corpus": corpus["name"],
        "split": config.split,
        "split_made_here": bool(corpus.get("split_made_here")),
        "measures": measures.aggregate(per_query),
        **covered,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _listed(config: EvaluateConfig, inputs: Mapping[str, Artifact]) -> pa.Table:
    """The split's list in a finished ranking, cut to the depth and to the sample of queries."""
    found = ranked.read(ranked.of_split(inputs["ranked"].place, config.split))
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
