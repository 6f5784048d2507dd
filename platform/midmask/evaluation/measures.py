"""Measures of ranked lists, per query, computed by ir-measures; and sets of measures by name, as papers report them.

Providers of ir-measures break ties differently, even within one call (with three equal scores RR@10 and nDCG@10
contradict each other; trec_eval puts the *highest* document id first). So no measure here sees a score: what it sees is
the negative rank of a list whose ties were broken before (`retrieve/ranked.py`). Apart from that, values are those of
`trec_eval -c`: a judged query that the list lacks, or that has no relevant document, counts with the measure's default,
0; a relevant document that nobody can find (it is not in the corpus) counts in the denominators; a grade below 0 gains
nothing. Queries without judgements count nowhere. `coverage` counts each kind.

A preset can be given wherever ir-measures names can. Papers write MRR@10 for RR@10, and Recall@k or R@k on NQ for
Success@k by answer strings.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midmask.core.registry import Registry
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

    parsed: dict[str, Any] = {}
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
        if str(measure) in parsed:
            raise UserError(f"measure {name!r} is named twice ({measure})")
        parsed[str(measure)] = measure
    return list(parsed.values())


def evaluate(ranked: pa.Table, qrels: pa.Table, split: str, measures: Sequence[str]) -> pa.Table:
    """Every measure for every judged query of the split: (query_id, measure, value), sorted by both.

    Args:
        ranked: query_id, doc_id, rank; each query's ranks are 1, 2, … without a gap.
        qrels: split, query_id, doc_id, grade.

    Raises:
        UserError: for an unknown measure, or a split without judgements.
    """
    import ir_measures

    parsed = parse(measures)
    judgements = judgements_of(qrels, split)
    if not judgements:
        splits = sorted(pc.unique(qrels["split"]).to_pylist())
        raise UserError(f"split {split!r}: no judgements. {known_names(splits)}")
    rows = [
        (metric.query_id, str(metric.measure), float(metric.value))
        for some, run in _inputs(parsed, run_of(ranked))
        for metric in ir_measures.iter_calc(some, judgements, run)
        if metric.query_id in judgements
    ]
    rows.sort()
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
    """Query -> document -> its negative rank: whole numbers below 2^24, so that single precision keeps them apart."""
    run: NegativeRanks = {}
    columns = [ranked[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
    for query_id, doc_id, rank in zip(*columns, strict=True):
        run.setdefault(query_id, {})[doc_id] = -float(rank)
    return run


def _inputs(measures: Sequence[Any], run: NegativeRanks) -> Iterator[tuple[list[Any], NegativeRanks]]:
    """Pairs measures with their run: RR@k with the first k rows, because its provider sorts all rows that it gets."""
    depths = {measure: measure["cutoff"] for measure in measures if measure.NAME == "RR" and "cutoff" in measure.params}
    if whole := [measure for measure in measures if measure not in depths]:
        yield whole, run
    for measure, depth in depths.items():
        yield [measure], {query_id: dict(islice(documents.items(), depth)) for query_id, documents in run.items()}


def coverage(ranked: pa.Table, qrels: pa.Table, split: str) -> dict[str, int]:
    """Judged queries; and those of them without a result, or without a relevant document, which score 0."""
    within = qrels.filter(pc.equal(qrels["split"], split))
    judged = set(pc.unique(within["query_id"]).to_pylist())
    answerable = set(pc.unique(within.filter(pc.greater_equal(within["grade"], 1))["query_id"]).to_pylist())
    listed = set(pc.unique(ranked["query_id"]).to_pylist())
    return {
        "queries": len(judged),
        "without_results": len(judged - listed),
        "without_relevant": len(judged - answerable),
    }


def aggregate(per_query: pa.Table) -> dict[str, float]:
    """The mean of every measure over its queries."""
    means: dict[str, float] = {}
    for name in pc.unique(per_query["measure"]).to_pylist():
        values = per_query.filter(pc.equal(per_query["measure"], name))["value"].to_numpy()
        means[name] = float(np.mean(values))
    return means


def aggregate_seeds(tables: Sequence[pa.Table]) -> dict[str, float]:
    """The mean of every measure over its queries and the seeds, a table each."""
    each = [aggregate(table) for table in tables]
    return {measure: sum(means[measure] for means in each) / len(each) for measure in each[0]}


def by_query(per_query: pa.Table, measure: str) -> Mapping[str, float]:
    """Maps each query to its value of one measure.

    Raises:
        UserError: naming the measures that are there, if it is not.
    """
    rows = per_query.filter(pc.equal(per_query["measure"], measure))
    if not len(rows):
        raise unknown("measure", measure, pc.unique(per_query["measure"]).to_pylist())
    return dict(zip(rows["query_id"].to_pylist(), rows["value"].to_pylist(), strict=True))


PRESETS: Registry[tuple[str, ...]] = Registry(
    "preset of measures",
    {
        # MS MARCO dev as most papers print it (DupMAE's table 1, CoT-MoTE's table 2).
        "msmarco": ("RR@10", "R@50", "R@1000"),
        # Lassance et al. 2023: tables 1 to 4, R@100 in table 6, nDCG@10 on TREC DL and BEIR.
        "sigir23": ("RR@10", "R@100", "R@1000", "nDCG@10"),
        # Xiao et al. 2022, MS MARCO and BEIR.
        "retromae": ("RR@10", "RR@100", "R@10", "R@100", "R@1000", "nDCG@10"),
        # Xiao et al. 2023, tables 1 and 3.
        "dupmae": ("RR@10", "RR@100", "R@10", "R@50", "R@100", "R@1000", "nDCG@10"),
        # Ma et al. 2023, tables 2 to 5.
        "cotmote": ("RR@10", "R@1", "R@50", "R@1000", "nDCG@10"),
        # Graded gain from all grades; relevant, where only that counts, is grade 2 or 3 (Craswell et al. 2020).
        "trec-dl": ("nDCG@10", "RR(rel=2)@10", "AP(rel=2)@1000", "R(rel=2)@100", "R(rel=2)@1000"),
        # Thakur et al. 2021.
        "beir": ("nDCG@10", "R@100"),
        # Karpukhin et al. 2020 (5, 20, 100) and RetroMAE's table (10, 30, 50, 100).
        "nq": ("Success@5", "Success@10", "Success@20", "Success@30", "Success@50", "Success@100"),
        # Rekabsaz et al. 2021; Hofstätter et al. 2022.
        "tripclick": ("nDCG@10", "RR@10", "R@100"),
        # Every cut that one of these papers prints.
        "papers": ("RR@10", "RR@100", "nDCG@10", *(f"R@{cut}" for cut in (1, 10, 20, 30, 50, 100, 1000))),
    },
)


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """The ir-measures names for these names, with presets expanded: each once, in order of first mention.

    Raises:
        UserError: for a name that is neither a measure nor a preset, naming the nearest, or one that is given twice.
    """
    presets = set(PRESETS)
    plain = [name for name in names if name not in presets]
    try:
        written = dict(zip(plain, map(str, parse(plain)), strict=True))
    except UserError as error:
        raise UserError(f"{error} Or a preset: {', '.join(sorted(presets))}.") from None
    expanded: dict[str, None] = {}
    for name in names:
        expanded.update(dict.fromkeys(PRESETS[name] if name in presets else (written[name],)))
    return tuple(expanded)
