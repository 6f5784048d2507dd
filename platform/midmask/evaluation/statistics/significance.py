"""Whether systems differ on the same queries: against a baseline, or every one against every other.

Values are paired by query. A system may bring several seeds: its value of a query is then the mean over them, so that
the query stays the unit of the test. Sweeps also give how much seeds alone move a mean. Argument names (`baseline`,
`test`, `correction`, `correction_alpha`) and their values are those of PyTerrier's `Experiment`; as there, the family
that a correction looks at is one measure's tests.

The SIGIR'23 benchmark of middle training compares all systems by paired t-test with Bonferroni at 0.05:
`compare(tables, measure="RR@10", correction="bonferroni")`.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from midmask.errors import UserError, unknown
from midmask.evaluation.measures import of_queries
from midmask.evaluation.statistics.intervals import ALPHA, Variance, standard_error
from midmask.evaluation.statistics.p_values import (
    Correction,
    Test,
    check_correction,
    correct,
    paired_p,
    strictest_level,
)
from midmask.evaluation.statistics.seeds import (
    SeedSample,
    SeedSpread,
    check_same_queries,
    deviation,
    read_sample,
    tables_of,
)

PerQuery = Mapping[str, pa.Table | Sequence[pa.Table]]
"""System -> its table (query_id, measure, value), or one table per seed."""


@dataclass(frozen=True)
class Comparison:
    """One system against another, the baseline, on one measure.

    difference: mean over queries of system minus baseline; low, high: its t confidence interval, for this test alone.
    p: two-sided, of one test; p_corrected: for the family of all tests in the call.
    effect: Cohen's d_z, the mean difference over the standard deviation of the differences; 0 if all are equal.
    detectable: the smallest true difference that a t-test of this standard error finds with a probability of 0.8, where
    it must pass the strictest level of the family (alpha over the number of tests).
    A single query gives an infinite interval, p = 1 and an infinite detectable difference.
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
    correction_alpha: float = ALPHA,
    queries: Collection[str] | None = None,
    seeds: SeedSpread | None = None,
    seed: int = 0,
) -> list[Comparison]:
    """Every other system against `baseline`, in the order given; without a baseline every system against each before.

    Args:
        baseline: a system's name, or its position as in PyTerrier; None: all pairs.
        correction_alpha: the level that p_corrected is compared with (below it is significant); the interval covers
            1 - correction_alpha.
        queries: the slice of queries to compare on; None: all.
        seeds: how much the seed alone moves a mean; p, interval and detectable difference of the t-test then count it
            beside the spread over queries.
        seed: of the permutation test.

    Raises:
        UserError: for an unknown baseline, measure, test or correction, systems with different queries, or a slice
            without values.
        ValueError: for `seeds` with another test than t.
    """
    check_correction(correction)
    if seeds is not None and test != "t":
        raise ValueError(f"the spread over seeds is counted by the t-test alone, not by {test}")
    named = _baseline_name(per_query, baseline)
    if queries is not None:
        per_query = {name: [of_queries(table, queries) for table in tables_of(per_query[name])] for name in per_query}
    samples = _samples(per_query, measure, first=named)
    if named is None:
        pairs = [(later, earlier) for earlier, later in combinations(samples, 2)]
    else:
        pairs = [(name, named) for name in samples if name != named]
    level = strictest_level(correction_alpha, len(pairs), correction)
    rows = [_difference(samples[own], samples[base], test, correction_alpha, level, seeds, seed) for own, base in pairs]
    corrected = correct([row["p"] for row in rows], correction)
    return [
        Comparison(system=own, baseline=base, measure=measure, p_corrected=p, significant=p < correction_alpha, **row)
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


def noise_floor(comparisons: Iterable[Comparison]) -> float | None:
    """The middle of the smallest detectable differences; None without a comparison, or where none could be detected."""
    found = [row.detectable for row in comparisons]
    middle = float(np.median(found)) if found else math.inf
    return middle if math.isfinite(middle) else None


def _baseline_name(per_query: PerQuery, baseline: str | int | None) -> str | None:
    names = list(per_query)
    if isinstance(baseline, int):
        if not 0 <= baseline < len(names):
            raise UserError(f"baseline {baseline}: positions of the {len(names)} systems count from 0; or give a name")
        return names[baseline]
    if baseline is not None and baseline not in per_query:
        raise unknown("baseline", baseline, per_query)
    return baseline


def _samples(per_query: PerQuery, measure: str, first: str | None) -> dict[str, SeedSample]:
    """Each system's values; `first` is who the others are held against where their queries differ."""
    found = {name: read_sample(name, tables, measure) for name, tables in per_query.items()}
    reference = first or next(iter(found), "")
    for name, own in found.items():
        check_same_queries(name, own.queries, reference, found[reference].queries)
    return found


def _difference(
    own: SeedSample, base: SeedSample, test: Test, alpha: float, level: float, seeds: SeedSpread | None, seed: int
) -> dict[str, Any]:
    """The fields of a comparison that need no names; `level`: what the detectable difference must pass."""
    difference_Q = own.means_Q - base.means_Q
    mean, spread = float(difference_Q.mean()), deviation(difference_Q)
    repeats = len(own.values_SQ), len(base.values_SQ)
    error = standard_error([Variance.of_mean(difference_Q), *([] if seeds is None else seeds.variances(*repeats))])
    margin = error.margin(alpha)
    return {
        "queries": len(own.queries),
        "seeds": repeats[0],
        "mean": float(own.means_Q.mean()),
        "baseline_mean": float(base.means_Q.mean()),
        "difference": mean,
        "low": mean - margin,
        "high": mean + margin,
        "p": error.p(mean) if test == "t" else paired_p(difference_Q, test, seed=seed),
        "effect": mean / spread if spread else 0.0,
        "detectable": error.detectable(level),
    }
