"""Whether one system is better than another on the same queries.

Values are paired by query. A system may bring several seeds: its value of a query is then the mean over them, so that
the query stays the unit of the test. Argument names (`baseline`, `test`, `correction`) are those of PyTerrier's
`Experiment`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from midmask.errors import UserError, unknown
from midmask.evaluate.measures import by_query

Test = Literal["t", "permutation"]
Correction = Literal["bonferroni", "holm"]

RESAMPLES = 9_999
"""Sign patterns drawn where there are too many to enumerate; the smallest p is then 1e-4."""

POWER = 0.8
"""Of the minimum detectable effect."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """One system against the baseline, on one measure.

    difference: mean over queries of system minus baseline; low, high: its t confidence interval.
    p: two-sided, of one test; p_corrected: for the family of all systems in the call.
    effect: Cohen's d_z, the mean difference over the standard deviation of the differences; 0 if all are equal.
    detectable: the smallest true difference that a t-test of this size and spread finds with a probability of 0.8.
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
    per_query: Mapping[str, pa.Table | Sequence[pa.Table]],
    *,
    baseline: str,
    measure: str,
    test: Test = "t",
    correction: Correction | None = "holm",
    alpha: float = 0.05,
    seed: int = 0,
) -> list[Comparison]:
    """Every other system against `baseline`, in the order given.

    Args:
        per_query: system -> its table (query_id, measure, value), or one table per seed.
        alpha: the level that p_corrected is held against; the interval covers 1 - alpha.
        seed: of the permutation test.

    Raises:
        UserError: for an unknown baseline, measure, test or correction, or systems with different queries.
    """
    if baseline not in per_query:
        raise unknown("baseline", baseline, per_query)
    if correction not in (None, "bonferroni", "holm"):
        raise unknown("correction", correction, ["bonferroni", "holm", "none"])
    values = {name: _mean_over_seeds(name, tables, measure) for name, tables in per_query.items()}
    base = values[baseline]
    rows = []
    for name, own in values.items():
        if name == baseline:
            continue
        _same_queries(name, own, baseline, base)
        pairs = np.array([(own[query], base[query]) for query in sorted(base)])
        rows.append(_describe(pairs[:, 0], pairs[:, 1], test, alpha, seed))
    corrected = correct([row["p"] for row in rows], correction)
    others = [name for name in values if name != baseline]
    return [
        Comparison(
            system=name,
            baseline=baseline,
            measure=measure,
            seeds=len(_tables(per_query[name])),
            p_corrected=p,
            significant=p < alpha,
            **row,
        )
        for name, row, p in zip(others, rows, corrected, strict=True)
    ]


def _tables(tables: pa.Table | Sequence[pa.Table]) -> Sequence[pa.Table]:
    return [tables] if isinstance(tables, pa.Table) else tables


def _mean_over_seeds(name: str, tables: pa.Table | Sequence[pa.Table], measure: str) -> dict[str, float]:
    runs = [by_query(table, measure) for table in _tables(tables)]
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


def _describe(own: Values, base: Values, test: Test, alpha: float, seed: int) -> dict[str, Any]:
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
        "detectable": minimum_detectable(spread, count, alpha=alpha),
    }


def paired_p(difference: Values, test: Test, *, seed: int = 0) -> float:
    """Two-sided p of "the mean difference is 0": paired t-test, or sign-flip permutation test (exact for few queries).

    Differences that are all zero, or a single query, give 1.

    Raises:
        UserError: for an unknown test.
    """
    if test not in ("t", "permutation"):
        raise unknown("test", test, ["permutation", "t"])
    if len(difference) < 2 or not difference.any():
        return 1.0
    if test == "t":
        if difference.std() == 0:
            return 0.0
        return float(stats.ttest_1samp(difference, 0.0).pvalue)
    found = stats.permutation_test(
        (difference,),
        lambda values, axis: np.mean(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, (1 << 22) // len(difference)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def correct(p_values: Sequence[float], correction: Correction | None) -> list[float]:
    """p for a family of tests: Bonferroni multiplies by their number; Holm (1979) by the number not yet rejected."""
    count = len(p_values)
    if correction is None:
        return list(p_values)
    if correction == "bonferroni":
        return [min(1.0, count * p) for p in p_values]
    corrected, highest = [0.0] * count, 0.0
    for step, index in enumerate(sorted(range(count), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (count - step) * p_values[index]))
        corrected[index] = highest
    return corrected


def minimum_detectable(spread: float, count: int, *, alpha: float = 0.05, power: float = POWER) -> float:
    """The smallest true mean difference that a two-sided paired t-test finds with probability `power`.

    (t(1 - alpha/2) + t(power)) · spread / √count, with count - 1 degrees of freedom (Cohen 1988, section 2.4); 0 if
    there is no spread, infinite for a single query.
    """
    if count < 2:
        return math.inf
    quantiles = stats.t.ppf(1 - alpha / 2, count - 1) + stats.t.ppf(power, count - 1)
    return float(quantiles) * spread / math.sqrt(count)
