"""Confidence intervals from independent variances, and what fine-tuning seeds add to the variance over queries.

An estimate may vary for several independent reasons: its queries, its seeds, its draws. Their variances add up, and the
degrees of freedom of the sum are Welch and Satterthwaite's (Satterthwaite 1946, eq. 17), so that few seeds that differ
much widen an interval by as much as t with two degrees of freedom does.

Two systems differ by chance in two ways: the queries are a sample (paired, so that only differences count), and so are
the seeds, which shift all queries of a system together and which no test over queries sees. How much seeds shift is
estimated in two ways, by what is there:

    SeedSpread  a sweep: one standard deviation s for all its trials, of which each has few seeds. A difference of two
                means over k seeds each gets the variance  var(d)/n + 2 s²/k,  d: differences per query, n of them. Part
                of a trial's own seeds is in d too, so this is rather too large than too small
    contrast    a benchmark: every system has a variance of its own, and what seeds do to single queries is taken out
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
from scipy import special

from midmask.core.arrays import Doubles
from midmask.errors import UserError
from midmask.evaluation.measures import by_query

ALPHA = 0.05
"""Of tests and intervals: intervals cover 95%."""

POWER = 0.8
"""With which a difference is found that is as large as the smallest detectable one."""


@dataclass(frozen=True)
class Variance:
    """An estimated variance of a mean, and its degrees of freedom."""

    value: float
    freedom: float

    @classmethod
    def of_mean(cls, values: Doubles | Sequence[float]) -> Self:
        """The variance of the mean of independent values; infinite for a single value, which shows no spread."""
        if len(values) < 2:
            return cls(math.inf, 1)
        return cls(float(np.var(values, ddof=1)) / len(values), len(values) - 1)

    def pooled(self, other: "Variance") -> "Variance":
        """Pools two estimates of one variance; for a prior and data, this is the posterior under the conjugate prior, a
        scaled inverse chi-squared distribution.
        """
        freedom = self.freedom + other.freedom
        return Variance((self.freedom * self.value + other.freedom * other.value) / freedom, freedom)

    @classmethod
    def of_share(cls, share: float, count: int) -> Self:
        """The binomial variance of a fraction of `count` things."""
        return cls(share * (1 - share) / count, count - 1)


@dataclass(frozen=True)
class IntervalEstimate:
    """A measured value with its confidence interval."""

    value: float
    low: float
    high: float
    detectable: float  # the smallest true value whose interval excludes 0 with a probability of 0.8
    p: float  # two-sided, of "the true value is 0"
    queries: int = 0  # on all collections together
    seeds: int = 1  # of the system that has fewest
    floor: bool = True  # whether any system has several seeds; if not, the interval is over queries alone


def interval(
    value: float, variances: Sequence[Variance], alpha: float = ALPHA, level: float | None = None
) -> IntervalEstimate:
    """The interval of an estimate whose variance is the sum of independently estimated variances.

    Args:
        alpha: the interval covers 1 - alpha. level: of the test that a detectable value must pass; none: alpha.

    The smallest detectable value is (t(1 - level/2) + t(`POWER`)) · standard error (Cohen 1988, section 2.4). The error
    is 0 where nothing varies, and infinite where it is not known.
    """
    total, freedom = math.fsum(variance.value for variance in variances), 1.0
    if total and math.isfinite(total):
        freedom = 1 / math.fsum((variance.value / total) ** 2 / variance.freedom for variance in variances)
    error = math.sqrt(total)
    # What stats.t computes with, without its checks: an all-pairs table asks for thousands.
    half, strict, power = map(float, special.stdtrit(freedom, [1 - alpha / 2, 1 - (level or alpha) / 2, POWER]))
    p = float(2 * special.stdtr(freedom, -abs(value) / error)) if error else float(value == 0)
    return IntervalEstimate(value, value - half * error, value + half * error, (strict + power) * error, p)


@dataclass(frozen=True)
class SeedSample:
    """A system's values of a measure on one collection. queries: ascending; values_SQ: a row per seed."""

    queries: tuple[str, ...]
    values_SQ: Doubles

    @cached_property
    def means_Q(self) -> Doubles:
        """Mean over seeds of every query, the same to the last bit in any order of the seeds."""
        return np.array([math.fsum(values_S) / len(values_S) for values_S in self.values_SQ.T])


def tables_of(tables: pa.Table | Sequence[pa.Table]) -> Sequence[pa.Table]:
    """A system's tables, one per seed."""
    return [tables] if isinstance(tables, pa.Table) else tables


def read_sample(name: str, tables: pa.Table | Sequence[pa.Table], measure: str) -> SeedSample:
    """The values of a system, from its table (query_id, measure, value) or one table per seed.

    Raises:
        UserError: for no table, a table without the measure, or seeds that were measured on different queries.
    """
    runs = [by_query(table, measure) for table in tables_of(tables)]
    if not runs:
        raise UserError(f"system {name!r} has no table of values")
    for number, run in enumerate(runs[1:], start=2):
        check_same_queries(f"{name}, seed {number}", run, f"{name}, seed 1", runs[0])
    queries = tuple(sorted(runs[0]))
    return SeedSample(queries, np.array([[run[query] for query in queries] for run in runs]))


def check_same_queries(name: str, queries: Collection[str], other: str, other_queries: Collection[str]) -> None:
    """Raises UserError if two systems or seeds were measured on different queries."""
    mine, theirs = set(queries), set(other_queries)
    if mine != theirs:
        raise UserError(
            f"{name} and {other} cannot be paired: {len(mine - theirs)} queries are only in the first, "
            f"{len(theirs - mine)} only in the second; evaluate both on the same queries"
        )


def deviation(values: Doubles | Sequence[float]) -> float:
    """Standard deviation of a sample; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class SeedSpread:
    """How much the fine-tuning seed alone moves a measure's mean over queries."""

    spread: float  # pooled standard deviation
    degrees: int  # degrees of freedom of the spread; 0 where no system has several seeds

    def variances(self, *repeats: int) -> list[Variance]:
        """The variance that seeds add to a difference of means, given the number of seeds of either; nothing where
        the spread is not known.
        """
        if not self.degrees:
            return []
        return [Variance(sum(self.spread**2 / count for count in repeats), self.degrees)]


def seed_spread(groups: Sequence[Sequence[float]]) -> SeedSpread:
    """The pooled spread over seeds, from one list per system with a mean per seed."""
    repeated = [np.asarray(group, dtype=np.float64) for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in repeated)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in repeated)
    return SeedSpread(math.sqrt(squares / degrees) if degrees else 0.0, degrees)


@dataclass(frozen=True)
class Weighted:
    """A system in a contrast."""

    name: str
    weight: float
    samples: Sequence[SeedSample]  # one per collection, with the same seeds on each
    is_drawn: bool = True  # False for a system without seeds (BM25)

    @cached_property
    def means_S(self) -> Doubles:
        """The mean over all collections with each seed."""
        return np.asarray(np.mean([sample.values_SQ.mean(1) for sample in self.samples], axis=0))

    @cached_property
    def between_seeds(self) -> float:
        """The variance between the seeds' means over all queries there could be; 0 for a single seed."""
        if len(self.means_S) < 2:
            return 0.0
        single = math.fsum(_residual(sample.values_SQ) for sample in self.samples) / len(self.samples) ** 2
        return max(0.0, float(self.means_S.var(ddof=1)) - single)


def contrast(systems: Sequence[Weighted], alpha: float = ALPHA) -> IntervalEstimate:
    """A weighted sum of systems' means (a difference, a difference of differences, a mean of several), on the mean over
    their collections, each weighing the same. Its variance has two parts:

        queries     per collection, the variance of  sum_k w_k · (mean over seeds of system k's value of the query),
                    over Q: systems are paired by query, as in a paired t-test. What a seed does to a query is in it
        seeds       per system, w_k² · (variance of the seeds' means less what seeds do to single queries), over S: what
                    training again changes on all queries. Seeds of two systems are not paired, since the same number
                    stands for different random choices in different models

    Seeds of a system that was run once are taken to differ as those of the contrast's other systems do.

    Raises:
        UserError: if systems were measured on different queries.
    """
    over_queries = [_over_queries(systems, number) for number in range(len(systems[0].samples))]
    value = math.fsum(system.weight * float(system.means_S.mean()) for system in systems)
    drawn = [len(system.means_S) for system in systems if system.is_drawn]
    return replace(
        interval(value, [*over_queries, *_over_seeds(systems)], alpha),
        queries=sum(len(sample.queries) for sample in systems[0].samples),
        seeds=min(drawn, default=1),
        floor=not drawn or max(drawn) > 1,
    )


def _over_queries(systems: Sequence[Weighted], number: int) -> Variance:
    """The variance over queries of one collection's part in the mean over all collections."""
    first, collections = systems[0], len(systems[0].samples)
    for system in systems[1:]:
        check_same_queries(system.name, system.samples[number].queries, first.name, first.samples[number].queries)
    difference_Q = np.sum([system.weight * system.samples[number].means_Q for system in systems], axis=0)
    variance = Variance.of_mean(difference_Q)
    return replace(variance, value=variance.value / collections**2)


def _residual(values_SQ: Doubles) -> float:
    """The variance of a seed's mean that comes from the effect of seeds on single queries."""
    seeds, queries = values_SQ.shape
    if queries < 2:
        return 0.0
    rest_SQ = values_SQ - values_SQ.mean(0) - values_SQ.mean(1, keepdims=True) + values_SQ.mean()
    return float((rest_SQ**2).sum() / ((seeds - 1) * (queries - 1) * queries))


def _over_seeds(systems: Sequence[Weighted]) -> list[Variance]:
    """The variance that each system's seeds add; a system with one seed gets the pooled variance of the others."""
    freedom = sum(len(system.means_S) - 1 for system in systems)
    if not freedom:
        return []
    pooled = math.fsum(system.between_seeds * (len(system.means_S) - 1) for system in systems) / freedom
    return [
        Variance(system.weight**2 * system.between_seeds / count, count - 1)
        if (count := len(system.means_S)) > 1
        else Variance(system.weight**2 * pooled, freedom)
        for system in systems
        if system.is_drawn
    ]
