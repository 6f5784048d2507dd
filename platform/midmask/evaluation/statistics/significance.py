"""Whether systems differ on the same queries: paired tests, corrections for a family of them, the result in words.

Values are paired by query. A system may bring several seeds: its value of a query is then the mean over them, so that
the query stays the unit of the test. Sweeps also give how much seeds alone move a mean. The test is the paired t-test;
the family that a correction looks at is one measure's tests.

The SIGIR'23 benchmark of middle training compares all systems by paired t-test with Bonferroni at 0.05:
`compare(tables, measure="RR@10", correction="bonferroni")`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from midmask.errors import unknown
from midmask.evaluation.statistics.intervals import (
    ALPHA,
    SeedSample,
    SeedSpread,
    Variance,
    check_same_queries,
    deviation,
    interval,
    read_sample,
)

Correction = Literal["bonferroni", "holm"]
ComparisonOutcome = Literal["better", "worse", "equal", "undecided"]
"""Of a test; equal: not significant, undecided: of too few queries to conclude from."""


def correct(p_values: Sequence[float], correction: Correction | None) -> list[float]:
    """Corrected p values of a family of tests, to be compared with the same alpha as that of one test.

    bonferroni: times the number of tests. holm (1979): times the number not yet rejected, the smallest first, and never
    below those before. None: as they are.

    Raises:
        UserError: for an unknown correction.
    """
    if correction not in (None, *get_args(Correction)):
        raise unknown("correction", correction, [*get_args(Correction), "none"])
    if correction is None:
        return list(p_values)
    order = np.argsort(p_values, kind="stable")
    tests = len(p_values) - (np.arange(len(p_values)) if correction == "holm" else 0)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(tests * np.asarray(p_values, np.float64)[order]))
    return corrected.tolist()


PerQuery = Mapping[str, pa.Table | Sequence[pa.Table]]
"""System -> its table (query_id, measure, value), or one table per seed."""


@dataclass(frozen=True)
class Comparison:
    """One system against another, the baseline, on one measure.

    A single query gives an infinite interval, p = 1 and an infinite detectable difference.
    """

    system: str
    baseline: str
    measure: str
    queries: int
    seeds: int
    mean: float
    baseline_mean: float
    difference: float  # mean over queries of system minus baseline
    low: float  # low, high: the difference's t confidence interval, for this test alone
    high: float
    p: float  # two-sided, of this test alone
    p_corrected: float  # for the family of all tests in the call
    effect: float  # Cohen's d_z: mean difference / standard deviation of the differences; 0 if all are equal
    # the smallest true difference that a t-test of this standard error finds with a probability of 0.8 at the strictest
    # level of the family (alpha over the number of tests)
    detectable: float
    significant: bool

    @property
    def outcome(self) -> ComparisonOutcome:
        """The test's result in a word, however few queries it has."""
        if not self.significant:
            return "equal"
        return "better" if self.difference > 0 else "worse"


def compare(
    per_query: PerQuery,
    *,
    measure: str,
    baseline: str | None = None,
    correction: Correction | None = "holm",
    seeds: SeedSpread | None = None,
) -> list[Comparison]:
    """Every other system against `baseline`, in the order given; without a baseline every system against each before.

    Args:
        baseline: a system's name; None: all pairs.
        seeds: how much the seed alone moves a mean; p, interval and detectable difference then count it beside the
            spread over queries.

    Raises:
        UserError: for an unknown baseline, measure or correction, or systems with different queries.
    """
    if baseline is not None and baseline not in per_query:
        raise unknown("baseline", baseline, per_query)
    samples = _samples(per_query, measure, first=baseline)
    if baseline is None:
        pairs = [(later, earlier) for earlier, later in combinations(samples, 2)]
    else:
        pairs = [(name, baseline) for name in samples if name != baseline]
    level = ALPHA if correction is None else ALPHA / max(1, len(pairs))  # that the smallest p must fall below
    rows = [_difference(samples[name], samples[base], level, seeds) for name, base in pairs]
    corrected = correct([row["p"] for row in rows], correction)
    return [
        Comparison(system=system, baseline=base, measure=measure, p_corrected=p, significant=p < ALPHA, **row)
        for (system, base), row, p in zip(pairs, rows, corrected, strict=True)
    ]


def better_than(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
    """Every compared system -> the systems that it is significantly better than, in the order of the comparisons."""
    beaten: dict[str, list[str]] = {}
    for row in comparisons:
        by_system, by_baseline = beaten.setdefault(row.system, []), beaten.setdefault(row.baseline, [])
        if row.significant and row.difference > 0:
            by_system.append(row.baseline)
        elif row.significant and row.difference < 0:
            by_baseline.append(row.system)
    return beaten


def noise_floor(comparisons: Iterable[Comparison]) -> float | None:
    """The middle of the smallest detectable differences; None without a comparison, or where none could be detected."""
    detectable = [row.detectable for row in comparisons]
    middle = float(np.median(detectable)) if detectable else math.inf
    return middle if math.isfinite(middle) else None


def _samples(per_query: PerQuery, measure: str, first: str | None) -> dict[str, SeedSample]:
    """Each system's values; `first` is who the others are held against where their queries differ."""
    samples = {name: read_sample(name, tables, measure) for name, tables in per_query.items()}
    reference = first or next(iter(samples), "")
    for name, sample in samples.items():
        check_same_queries(name, sample.queries, reference, samples[reference].queries)
    return samples


def _difference(system: SeedSample, baseline: SeedSample, level: float, seeds: SeedSpread | None) -> dict[str, Any]:
    """The fields of a comparison that need no names; `level`: what the detectable difference must pass."""
    difference_Q = system.means_Q - baseline.means_Q
    mean, spread = float(difference_Q.mean()), deviation(difference_Q)
    repeats = len(system.values_SQ), len(baseline.values_SQ)
    variances = [Variance.of_mean(difference_Q), *([] if seeds is None else seeds.variances(*repeats))]
    estimate = interval(mean, variances, level=level)
    return {
        "queries": len(system.queries),
        "seeds": repeats[0],
        "mean": float(system.means_Q.mean()),
        "baseline_mean": float(baseline.means_Q.mean()),
        "difference": mean,
        "low": estimate.low,
        "high": estimate.high,
        "p": estimate.p,
        "effect": mean / spread if spread else 0.0,
        "detectable": estimate.detectable,
    }


def sentence(row: Comparison, place: str, tests: int = 1) -> str:
    """A sentence on a system against the first: which is better and by how much, or the detectable difference.

    Args:
        tests: how many its p is corrected for.
    """
    both = f"{row.system} and {row.baseline}"
    if row.difference == 0 and row.detectable == 0:
        return f"{both} have the same {row.measure} on each of the {row.queries:,} queries of {place}: {row.mean:.4f}."
    if row.outcome == "equal":
        power = f" A true difference of {row.detectable:.4f} would be found with a probability of 0.8."
        return (
            f"{both} are not distinguishable on {place}: {row.measure} {row.mean:.4f} and "
            f"{row.baseline_mean:.4f}, a difference of {row.difference:+.4f} ({_tested(row, 1, tests)})."
            f"{power if math.isfinite(row.detectable) else ''}"
        )
    sign = 1 if row.outcome == "better" else -1
    better, worse = [(row.system, row.mean), (row.baseline, row.baseline_mean)][::sign]
    return (
        f"{better[0]} is better than {worse[0]} on {place}: {row.measure} {better[1]:.4f} against {worse[1]:.4f}, a "
        f"difference of {abs(row.difference):.4f} ({_tested(row, sign, tests)})."
    )


def _tested(row: Comparison, sign: int, tests: int) -> str:
    low, high = sorted((sign * row.low, sign * row.high))
    corrected = " after Holm's correction" if tests > 1 else ""
    p = p_text(row.p_corrected, "p = ", "p ")
    return f"95% interval {low:+.4f} to {high:+.4f}, {p}{corrected}, {row.queries:,} queries"


def p_text(p: float, equal: str = "", below: str = "") -> str:
    """A p for people; `equal` and `below` go before a value and before "< 0.0001"."""
    return f"{below}< 0.0001" if p < 1e-4 else f"{equal}{p:.2g}"
