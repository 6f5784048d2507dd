"""Measures of ranked lists, per query, computed by ir-measures.

Providers of ir-measures break ties differently, even within one call (with three equal scores RR@10 and nDCG@10
contradict each other; trec_eval puts the *highest* document id first). So no measure here sees a score: what it sees is
the negative rank of a list whose ties were broken before (`retrieve/ranked.py`). Apart from that, values are those of
`trec_eval -c`: a judged query that the list lacks, or that has no relevant document, counts with the measure's default,
0; a relevant document that nobody can find (it is not in the corpus) counts in the denominators; a grade below 0 gains
nothing. Queries without judgements count nowhere. `coverage` counts each kind.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.errors import UserError, known_names, unknown

SCHEMA = pa.schema([("query_id", pa.string()), ("measure", pa.string()), ("value", pa.float64())])

DEFAULT = ("nDCG@10", "RR@10", "R@100")

NegativeRanks = dict[str, dict[str, float]]
"""query -> document -> its rank, negated, in the order of the list."""

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
    if not names:
        return []
    import ir_measures  # here, so that a training without measures does not need it

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
    import ir_measures

    wanted = parse(measures)
    judgements = judgements_of(qrels, split)
    if not judgements:
        splits = sorted(pc.unique(qrels["split"]).to_pylist())
        raise UserError(f"split {split!r}: no judgements. {known_names(splits)}")
    rows = [
        (metric.query_id, str(metric.measure), float(metric.value))
        for some, run in _inputs(wanted, run_of(ranked))
        for metric in ir_measures.iter_calc(some, judgements, run)
        if metric.query_id in judgements
    ]
    rows.sort()
    if len(rows) != len(judgements) * len(wanted):
        raise ValueError(f"{len(rows)} values for {len(judgements)} queries and {len(wanted)} measures")
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def judgements_of(qrels: pa.Table, split: str) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    within = qrels.filter(pc.equal(qrels["split"], split))
    columns = [within[name].to_pylist() for name in ("query_id", "doc_id", "grade")]
    for query_id, doc_id, grade in zip(*columns, strict=True):
        judgements.setdefault(query_id, {})[doc_id] = grade
    for grades in judgements.values():
        # trec_eval counts documents by grade in an array as long as the highest; at -2 and below it ends the process.
        if max(grades.values()) < 0:
            grades.update(dict.fromkeys(grades, 0))
    return judgements


def run_of(ranked: pa.Table) -> NegativeRanks:
    """query -> document -> negative rank: whole numbers below 2^24, so single precision keeps them apart."""
    if not len(ranked):
        return {}
    rank = ranked["rank"].to_numpy()
    blocks = pc.run_end_encode(ranked["query_id"].combine_chunks())
    ends = blocks.run_ends.to_numpy()
    starts = np.append(0, ends[:-1])
    position = np.arange(1, len(rank) + 1) - np.repeat(starts, ends - starts)
    doc_ids = ranked["doc_id"].to_pylist()
    if len(wrong := np.flatnonzero(rank != position)):
        row = int(wrong[0])
        query_id = ranked["query_id"][row].as_py()
        raise ValueError(f"query {query_id!r}: rank {rank[row]} of {doc_ids[row]!r} stands at position {position[row]}")
    negative = (-np.arange(1.0, position.max() + 1)).tolist()
    run: NegativeRanks = {}
    for query_id, start, end in zip(blocks.values.to_pylist(), starts.tolist(), ends.tolist(), strict=True):
        documents = dict(zip(doc_ids[start:end], negative, strict=False))
        if len(documents) < end - start or query_id in run:
            raise ValueError(f"query {query_id!r}: a document stands twice, or the query in two places")
        run[query_id] = documents
    return run


def _inputs(wanted: Sequence[Any], run: NegativeRanks) -> Iterator[tuple[list[Any], NegativeRanks]]:
    """Measures with the run they are computed from: RR@k from the first k rows, as its provider sorts all it gets."""
    depths = {measure: measure["cutoff"] for measure in wanted if measure.NAME == "RR" and "cutoff" in measure.params}
    if whole := [measure for measure in wanted if measure not in depths]:
        yield whole, run
    for measure, depth in depths.items():
        yield [measure], {query_id: dict(islice(documents.items(), depth)) for query_id, documents in run.items()}


def coverage(ranked: pa.Table, qrels: pa.Table, split: str) -> dict[str, int]:
    """Judged queries; those of them without a result, and those without a relevant document (both score 0); and listed
    queries without judgements (left out)."""
    within = qrels.filter(pc.equal(qrels["split"], split))
    judged = set(pc.unique(within["query_id"]).to_pylist())
    answerable = set(pc.unique(within.filter(pc.greater_equal(within["grade"], 1))["query_id"]).to_pylist())
    listed = set(pc.unique(ranked["query_id"]).to_pylist())
    return {
        "queries": len(judged),
        "without_results": len(judged - listed),
        "without_relevant": len(judged - answerable),
        "unjudged": len(listed - judged),
    }


def of_queries(per_query: pa.Table, queries: Collection[str]) -> pa.Table:
    """The values of a slice of queries. Those of its queries that have no judgements have no values to begin with.

    Raises:
        UserError: if none of its queries has a value.
    """
    kept = per_query.filter(pc.is_in(per_query["query_id"], value_set=pa.array(sorted(queries), pa.string())))
    if not len(kept):
        raise UserError(
            f"none of the slice's {len(queries)} queries is among the {pc.count_distinct(per_query['query_id'])} that "
            "were evaluated; name queries of the evaluated split"
        )
    return kept


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
