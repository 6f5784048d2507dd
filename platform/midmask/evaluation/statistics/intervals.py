"""From variances to a standard error, and from there to a confidence interval, a p-value and the smallest detectable
difference; and the interval of a rank correlation.

An estimate may vary for several independent reasons: its queries, its seeds, its draws. Their variances add up, and the
degrees of freedom of the sum are Welch and Satterthwaite's (Satterthwaite 1946, eq. 17), so that few seeds that differ
much widen an interval by as much as t with two degrees of freedom does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import special, stats

from midmask.arrays import Doubles

ALPHA = 0.05
"""Of tests and intervals: intervals cover 95%."""

POWER = 0.8
"""With which a difference is found that is as large as the smallest detectable one."""

FEWEST_RANKED = 5
"""Pairs below which a rank correlation has no interval."""


@dataclass(frozen=True)
class Variance:
    """An estimated variance of a mean, and its degrees of freedom."""

    value: float
    freedom: float

    @classmethod
    def of_mean(cls, values: Doubles | Sequence[float]) -> Self:
        """Of the mean of independent values; infinite for a single value, which shows no spread."""
        if len(values) < 2:
            return cls(math.inf, 1)
        return cls(float(np.var(values, ddof=1)) / len(values), len(values) - 1)

    def pooled(self, other: "Variance") -> "Variance":
        """Two estimates of one variance as one; of a prior and data, the posterior under the conjugate prior, a scaled
        inverse chi-squared distribution.
        """
        freedom = self.freedom + other.freedom
        return Variance((self.freedom * self.value + other.freedom * other.value) / freedom, freedom)

    @classmethod
    def of_share(cls, share: float, count: int) -> Self:
        """Of a share of `count` things: the binomial's."""
        return cls(share * (1 - share) / count, count - 1)


@dataclass(frozen=True)
class StandardError:
    """Of an estimate, with its degrees of freedom; value: 0 where nothing varies, infinite where it is not known."""

    value: float
    freedom: float

    def margin(self, alpha: float = ALPHA) -> float:
        """Half the width of the confidence interval that covers 1 - alpha."""
        return self._quantile(1 - alpha / 2) * self.value

    def p(self, estimate: float) -> float:
        """Two-sided p of "the true value is 0"."""
        if not self.value:
            return 1.0 if estimate == 0 else 0.0
        return float(2 * special.stdtr(self.freedom, -abs(estimate) / self.value))

    def detectable(self, alpha: float = ALPHA) -> float:
        """The smallest true value that a two-sided t-test at this alpha finds with probability `POWER`.

        (t(1 - alpha/2) + t(POWER)) · standard error (Cohen 1988, section 2.4).
        """
        return (self._quantile(1 - alpha / 2) + self._quantile(POWER)) * self.value

    def _quantile(self, probability: float) -> float:
        # What stats.t computes with, without its checks: an all-pairs table asks for thousands.
        return float(special.stdtrit(self.freedom, probability))


def standard_error(variances: Sequence[Variance]) -> StandardError:
    """Of an estimate whose variance is the sum of these, which were estimated independently."""
    total = math.fsum(one.value for one in variances)
    if total == 0 or math.isinf(total):
        return StandardError(total, 1)
    freedom = 1 / math.fsum((one.value / total) ** 2 / one.freedom for one in variances)
    return StandardError(math.sqrt(total), freedom)


@dataclass(frozen=True)
class IntervalEstimate:
    """A value as measured.

    low, high: the confidence interval. detectable: the smallest true value that such an interval excludes 0 for, with a
    probability of 0.8. queries: on all collections together. seeds: of the system that has fewest. floor: whether any
    system was repeated, to show how much seeds differ; without one, the interval is over queries alone.
    """

    value: float
    low: float
    high: float
    detectable: float
    queries: int = 0
    seeds: int = 1
    floor: bool = True


def interval(value: float, variances: Sequence[Variance], alpha: float = ALPHA) -> IntervalEstimate:
    """The interval of an estimate whose variance is the sum of these."""
    error = standard_error(variances)
    margin = error.margin(alpha)
    return IntervalEstimate(value, value - margin, value + margin, error.detectable(alpha))


@dataclass(frozen=True)
class RankCorrelation:
    """Kendall's tau-b of `count` pairs, and its 95% interval; None where there are too few pairs or all are equal."""

    count: int
    tau: float | None
    low: float | None
    high: float | None

    @property
    def is_positive(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low is not None and self.low > 0


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> RankCorrelation:
    """How alike two sequences of the same length rank.

    The interval is Fisher's transform with var(z) = 0.437 / (n - 4) (Fieller, Hartley and Pearson 1957, Biometrika 44,
    p. 470). Perfect agreement, whose transform is infinite, counts as half a pair less than perfect.
    """
    count = len(first)
    tau = float(stats.kendalltau(first, second).statistic) if count > 1 else math.nan
    if math.isnan(tau):
        return RankCorrelation(count, None, None, None)
    if count < FEWEST_RANKED:
        return RankCorrelation(count, tau, None, None)
    half = float(stats.norm.ppf(1 - ALPHA / 2)) * math.sqrt(0.437 / (count - 4))
    most = 1 - 1 / math.comb(count, 2)
    centre = math.atanh(max(-most, min(most, tau)))
    return RankCorrelation(count, tau, math.tanh(centre - half), math.tanh(centre + half))
