"""Measures of ranked lists, per query, computed by ir-measures.

Providers of ir-measures break ties differently, even within one call (with three equal scores RR@10 and nDCG@10
contradict each other). So no measure here sees a score: what it sees is the negative rank of a list whose ties were
broken before. A judged query that the list lacks has the measure's default, 0, as `trec_eval -c` has it; queries
without judgements count nowhere, but `coverage` tells how many there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.errors import UserError, unknown

SCHEMA = pa.schema([("query_id", pa.string()), ("measure", pa.string()), ("value", pa.float64())])

DEFAULT = ("nDCG@10", "RR@10", "R@100")

LARGE = 10_000
"""Passages from which on R@1000 says anything."""


def default_measures(passages: int, depth: int) -> list[str]:
    """nDCG@10, RR@10, R@100, and R@1000 where corpus and ranked list are large enough for it."""
    return [*DEFAULT, *(["R@1000"] if passages >= LARGE and depth >= 1000 else [])]


def parse(names: Sequence[str]) -> list[Any]:
    """The measures of these names, as ir-measures writes them (`nDCG@10`, `R(rel=2)@100`).

    Raises:
        UserError: for a name that is unknown, malformed, given twice, or that nothing installed can compute.
    """
    found: dict[str, Any] = {}
    for name in names:
        try:
            measure = ir_measures.parse_measure(name)
            supported = ir_measures.DefaultPipeline.supports(measure)
        except NameError:
            stem = name.split("@")[0].split("(")[0]
            raise unknown("measure", stem, ir_measures.measures.registry, hint="Write it as in nDCG@10.") from None
        except (ValueError, AssertionError, TypeError, KeyError) as error:
            raise UserError(f"measure {name!r}: {error}; write it as in nDCG@10 or R(rel=2)@100") from None
        if not supported:
            raise UserError(f"measure {name!r}: nothing installed can compute it; use {', '.join(DEFAULT)} or the like")
        if str(measure) in found:
            raise UserError(f"measure {name!r} is named twice ({measure})")
        found[str(measure)] = measure
    return list(found.values())


def evaluate(ranked: pa.Table, qrels: pa.Table, split: str, measures: Sequence[str]) -> pa.Table:
    """Every measure for every judged query of the split: (query_id, measure, value), sorted by both.

    Args:
        ranked: query_id, doc_id, rank; each query's ranks are 1, 2, … without a gap.
        qrels: split, query_id, doc_id, grade.

    Raises:
        UserError: for an unknown measure, or a split without judgements.
        ValueError: for a list whose ranks are not strict.
    """
    wanted = parse(measures)
    judgements = _judgements(qrels, split)
    if not judgements:
        raise UserError(
            f"split {split!r}: no judgements. Known: {', '.join(sorted(pc.unique(qrels['split']).to_pylist()))}."
        )
    run = _run(ranked)
    rows = [
        (metric.query_id, str(metric.measure), float(metric.value))
        for metric in ir_measures.iter_calc(wanted, judgements, run)
        if metric.query_id in judgements
    ]
    rows.sort()
    if len(rows) != len(judgements) * len(wanted):
        raise ValueError(f"{len(rows)} values for {len(judgements)} queries and {len(wanted)} measures")
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def _judgements(qrels: pa.Table, split: str) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    within = qrels.filter(pc.equal(qrels["split"], split))
    columns = [within[name].to_pylist() for name in ("query_id", "doc_id", "grade")]
    for query_id, doc_id, grade in zip(*columns, strict=True):
        judgements.setdefault(query_id, {})[doc_id] = grade
    return judgements


def _run(ranked: pa.Table) -> dict[str, dict[str, float]]:
    """query -> document -> negative rank: whole numbers below 2^24, so single precision keeps them apart."""
    run: dict[str, dict[str, float]] = {}
    columns = [ranked[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
    for query_id, doc_id, rank in zip(*columns, strict=True):
        documents = run.setdefault(query_id, {})
        documents[doc_id] = -float(rank)
        if rank != len(documents):
            raise ValueError(f"query {query_id!r}: rank {rank} of {doc_id!r} stands at position {len(documents)}")
    return run


def coverage(ranked: pa.Table, qrels: pa.Table, split: str) -> dict[str, int]:
    """Judged queries, those of them without a result (they score 0), and listed queries without judgements (left
    out)."""
    judged = set(pc.unique(qrels.filter(pc.equal(qrels["split"], split))["query_id"]).to_pylist())
    listed = set(pc.unique(ranked["query_id"]).to_pylist())
    return {"queries": len(judged), "without_results": len(judged - listed), "unjudged": len(listed - judged)}


def aggregate(per_query: pa.Table) -> dict[str, float]:
    """The mean of every measure over its queries."""
    means: dict[str, float] = {}
    for name in pc.unique(per_query["measure"]).to_pylist():
        values = per_query.filter(pc.equal(per_query["measure"], name))["value"].to_numpy()
        means[name] = float(np.mean(values))
    return means


def by_query(per_query: pa.Table, measure: str) -> Mapping[str, float]:
    """One measure as query -> value.

    Raises:
        UserError: naming the measures that are there, if it is not.
    """
    rows = per_query.filter(pc.equal(per_query["measure"], measure))
    if not len(rows):
        raise unknown("measure", measure, pc.unique(per_query["measure"]).to_pylist())
    return dict(zip(rows["query_id"].to_pylist(), rows["value"].to_pylist(), strict=True))
