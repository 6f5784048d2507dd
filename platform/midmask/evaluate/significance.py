"""Whether systems differ on the same queries: against a baseline, or every one against every other.

Values are paired by query. A system may bring several seeds: its value of a query is then the mean over them, so that
the query stays the unit of the test. Argument names (`baseline`, `test`, `correction`, `correction_alpha`) and their
values are those of PyTerrier's `Experiment`; as there, the family that a correction looks at is one measure's tests.

The SIGIR'23 benchmark of middle training compares all systems by paired t-test with Bonferroni at 0.05:
`compare(tables, measure="RR@10", correction="bonferroni")`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from midmask.errors import UserError, unknown
from midmask.evaluate.inference import (
    Correction,
    Test,
    Values,
    check_correction,
    correct,
    minimum_detectable,
    paired_p,
    strictest_level,
)
from midmask.evaluate.measures import by_query, of_queries

PerQuery = Mapping[str, pa.Table | Sequence[pa.Table]]
"""System -> its table (query_id, measure, value), or one table per seed."""


@dataclass(frozen=True)
class Comparison:
    """One system against another, the baseline, on one measure.

    difference: mean over queries of system minus baseline; low, high: its t confidence interval, for this test alone.
    p: two-sided, of one test; p_corrected: for the family of all tests in the call.
    effect: Cohen's d_z, the mean difference over the standard deviation of the differences; 0 if all are equal.
    detectable: the smallest true difference that a t-test of this size and spread finds with a probability of 0.8,
    where it must pass the strictest level of the family (alpha over the number of tests).
    """

    system: str
    baseline: str
    measure: str
    queries: int
    seeds: int
    mean: float
    baseline_mean: float
    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    effect: float
    detectable: float
    significant: bool


def compare(
    per_query: PerQuery,
    *,
    measure: str,
    baseline: str | int | None = None,
    test: Test = "t",
    correction: Correction | None = "holm",
    correction_alpha: float = 0.05,
    queries: Collection[str] | None = None,
    seed: int = 0,
) -> list[Comparison]:
    """Every other system against `baseline`, in the order given; without a baseline every system against each before.

    Args:
        baseline: a system's name, or its position as in PyTerrier; None: all pairs.
        correction_alpha: the level that p_corrected is held against (below it is significant); the interval covers
            1 - correction_alpha.
        queries: the slice of queries to compare on; None: all.
        seed: of the permutation test.

    Raises:
        UserError: for an unknown baseline, measure, test or correction, systems with different queries, or a slice
            without values.
    """
    check_correction(correction)
    named = _baseline_name(per_query, baseline)
    if queries is not None:
        per_query = {name: [of_queries(table, queries) for table in tables_of(per_query[name])] for name in per_query}
    values = _aligned(per_query, measure, first=named)
    pairs = (
        [(later, earlier) for earlier, later in combinations(values, 2)]
        if named is None
        else [(name, named) for name in values if name != named]
    )
    level = strictest_level(correction_alpha, len(pairs), correction)
    rows = [_describe(values[own], values[base], test, correction_alpha, level, seed) for own, base in pairs]
    corrected = correct([row["p"] for row in rows], correction)
    return [
        Comparison(
            system=own,
            baseline=base,
            measure=measure,
            seeds=len(tables_of(per_query[own])),
            p_corrected=p,
            significant=p < correction_alpha,
            **row,
        )
        for (own, base), row, p in zip(pairs, rows, corrected, strict=True)
    ]


def better_than(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
    """Every compared system -> the systems that it is significantly better than, in the order of the comparisons."""
    beaten: dict[str, list[str]] = {}
    for row in comparisons:
        own, base = beaten.setdefault(row.system, []), beaten.setdefault(row.baseline, [])
        if row.significant and row.difference > 0:
            own.append(row.baseline)
        elif row.significant and row.difference < 0:
            base.append(row.system)
    return beaten


def tables_of(tables: pa.Table | Sequence[pa.Table]) -> Sequence[pa.Table]:
    """A system's tables, one per seed."""
    return [tables] if isinstance(tables, pa.Table) else tables


def _baseline_name(per_query: PerQuery, baseline: str | int | None) -> str | None:
    names = list(per_query)
    if isinstance(baseline, int):
        if not 0 <= baseline < len(names):
            raise UserError(f"baseline {baseline}: positions of the {len(names)} systems count from 0; or give a name")
        return names[baseline]
    if baseline is not None and baseline not in per_query:
        raise unknown("baseline", baseline, per_query)
    return baseline


def _aligned(per_query: PerQuery, measure: str, first: str | None) -> dict[str, Values]:
    """Each system's values in one order of the queries, that of the sorted ids; `first` is who the others are held
    against where their queries differ."""
    found = {name: _mean_over_seeds(name, tables, measure) for name, tables in per_query.items()}
    if not found:
        return {}
    reference = first or next(iter(found))
    for name, own in found.items():
        _same_queries(name, own, reference, found[reference])
    order = sorted(found[reference])
    return {name: np.array([own[query] for query in order]) for name, own in found.items()}


def _mean_over_seeds(name: str, tables: pa.Table | Sequence[pa.Table], measure: str) -> dict[str, float]:
    runs = [by_query(table, measure) for table in tables_of(tables)]
    if not runs:
        raise UserError(f"system {name!r} has no table of values")
    for number, run in enumerate(runs[1:], start=2):
        _same_queries(f"{name}, seed {number}", run, f"{name}, seed 1", runs[0])
    return {query: math.fsum(run[query] for run in runs) / len(runs) for query in runs[0]}


def _same_queries(name: str, own: Mapping[str, float], other: str, base: Mapping[str, float]) -> None:
    if own.keys() != base.keys():
        raise UserError(
            f"{name} and {other} cannot be paired: {len(own.keys() - base.keys())} queries are only in the first, "
            f"{len(base.keys() - own.keys())} only in the second; evaluate both on the same queries"
        )


def _describe(own: Values, base: Values, test: Test, alpha: float, level: float, seed: int) -> dict[str, Any]:
    """The fields of a comparison that need no names; `level`: what the detectable effect must pass."""
    difference = own - base
    count = len(difference)
    mean = float(difference.mean())
    spread = float(difference.std(ddof=1)) if count > 1 else 0.0
    error = spread / math.sqrt(count)
    half = float(stats.t.ppf(1 - alpha / 2, count - 1)) * error if spread else 0.0
    return {
        "queries": count,
        "mean": float(own.mean()),
        "baseline_mean": float(base.mean()),
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
        "p": paired_p(difference, test, seed=seed),
        "effect": mean / spread if spread else 0.0,
        "detectable": minimum_detectable(spread, count, alpha=level),
    }
