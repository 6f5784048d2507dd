"""How well gains on made queries agree with gains on judged queries, and the interval of a real gain that follows.

The model, for system k on collection c:

    real gain = shrink · (gain on all queries that could be made) - bias + N(0, between²)

`shrink` is what remains of a gain when people ask, `bias` a gain that people would not see, and `between` how far
single systems and collections scatter around that line. Gains are differences of a measure from a baseline, so the
baseline has gain 0 on both sides, and `bias` is 0 unless somebody knows better: a few collections cannot tell it from
`shrink`.

N gains, C collections. Everything is float64.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from midmask.arrays import Doubles, Ints
from midmask.choice.calibration_records import GainRecord
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval, rank_correlation

KNOWN = 1e9
"""Degrees of freedom of a variance that is known: t with as many is the normal distribution."""


ROUNDS = 100
CLOSE = 1e-12
"""Change of between² at which the iteration ends: a millionth of a difference of 0.001, squared."""

LEAST_SIGNAL = 1 / 3
"""Share of the made gains' squares that is taken to be more than error, at least: bounds the slope's correction."""


@dataclass(frozen=True)
class Fit:
    """The model's parameters, as estimated.

    shrink_error: standard error of `shrink`. freedom: degrees of freedom of `between`. collections: what it was
    estimated from; empty for the prior. gains: their number.
    """

    shrink: float
    between: float
    freedom: float
    shrink_error: float = 0.0
    bias: float = 0.0
    collections: tuple[str, ...] = ()
    gains: int = 0

    def expected(self, gain: float) -> float:
        """The real gain, given the mean gain on made queries."""
        return self.shrink * gain - self.bias

    def variances(self, gain: float, sampling: Variance) -> list[Variance]:
        """Those of the real gain around the expected one: of the sample, of the slope, and between systems."""
        return [
            Variance(self.shrink**2 * sampling.value if self.shrink else 0.0, sampling.freedom),
            Variance(gain**2 * self.shrink_error**2, max(len(self.collections) - 1, 1)),
            Variance(self.between**2, self.freedom),
        ]


def sum_interval(
    parts: Sequence[tuple[Fit, float, Variance]], coverage: float, *, noise: float = 0.0
) -> IntervalEstimate:
    """The sum of real gains, each given its model, the mean gain on made queries and the variance of that mean.

    With m the mean of n differences and se² = variance / n, m = M + N(0, se²) around the gain M on all queries that
    could be made, and real gain = shrink · M - bias + N(0, between²). Put together, given m,

        real gain - (shrink · m - bias)   has variance   shrink² · se² + between²,

    since the errors are independent. An estimated shrink adds m² · shrink_error². The interval is symmetric around
    shrink · m - bias, with the quantile of t whose degrees of freedom are Welch and Satterthwaite's: n - 1 of se²,
    `freedom` of between². A single difference shows no spread, so its interval is infinite.

    Args:
        coverage: of the interval, such as 0.9.
        noise: variance of another estimate of the real gain; the interval then covers that estimate.
    """
    value = math.fsum(fit.expected(gain) for fit, gain, _ in parts)
    variances = [one for fit, gain, sampling in parts for one in fit.variances(gain, sampling)]
    return interval(value, [*variances, Variance(noise, KNOWN)], 1 - coverage)


PRIOR = Fit(shrink=1.0, between=0.02, freedom=4)
"""Used until there are records of two collections. Gains of middle training are about 0.01 to 0.05 of nDCG@10.
This takes a made gain at face value and scatters real gains by 0.02 around it, so that a 90% interval reaches about
0.043 or more to each side (t with four degrees of freedom). It is an assumption, and a verdict that uses it has to say
so.
"""


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau-b of two measurements of the same systems; None for fewer than two, or if all are equal."""
    return rank_correlation(a, b).tau


def regret(estimates: Sequence[float], judged: Sequence[float]) -> float:
    """What the choice by estimate loses: the best judged value less that of the system with the highest estimate.

    Of equal estimates the first counts. Never negative.
    """
    if len(estimates) != len(judged) or not len(judged):
        raise ValueError(f"{len(estimates)} estimates and {len(judged)} judged values; both need one for each system")
    return float(max(judged) - judged[int(np.argmax(estimates))])


def fit_calibration(records: Sequence[GainRecord]) -> Fit:
    """The model that fits these records; `PRIOR` for fewer than two collections, or if no made gain differs from 0.

    `shrink` is the slope of a line through the origin with errors in both variables, and `between` is what scatters
    beyond them (DerSimonian and Laird's moments, iterated with the slope).

    With few collections two things are easily taken for smaller than they are, and are not here:

    - Systems of one collection share its baseline and its quirks. N residuals with the intra-class correlation rho are
      worth N / (1 + (N/C - 1) · rho²) independent ones. That number, less one for the slope, is the degrees of freedom.
    - A moment estimate of between² is often negative. Cut off at 0 it would say that nothing scatters. Instead its
      posterior mean under a flat prior over between² >= 0 is taken: the estimate itself where it is well above its
      standard error, and about 0.8 standard errors where it is 0.
    """
    names = tuple(dict.fromkeys(one.collection for one in records))
    made_N = np.array([one.made for one in records], dtype=np.float64)
    if len(names) < 2 or not made_N.any():
        return PRIOR
    judged_N = np.array([one.judged for one in records], dtype=np.float64)
    made_noise_N = np.array([one.made_error**2 for one in records], dtype=np.float64)
    judged_noise_N = np.array([one.judged_error**2 for one in records], dtype=np.float64)
    groups_N = np.array([names.index(one.collection) for one in records])

    shrink, between2 = 1.0, float(np.var(judged_N)) or 1.0
    for _ in range(ROUNDS):
        noise_N = judged_noise_N + shrink**2 * made_noise_N
        weights_N = _weights(noise_N + between2)
        shrink, signal = _slope(made_N, judged_N, made_noise_N, weights_N)
        residuals_N = judged_N - shrink * made_N
        freedom = _freedom(residuals_N, groups_N)
        before, between2 = between2, _between(residuals_N, noise_N, weights_N, freedom)
        if abs(between2 - before) <= CLOSE:
            break
    scores_C = np.bincount(groups_N, weights_N * made_N * residuals_N)
    spread = float(np.sum(scores_C**2)) * len(names) / (len(names) - 1)
    error = math.sqrt(spread) / signal
    return Fit(shrink, math.sqrt(between2), freedom, error, collections=names, gains=len(records))


def _weights(variances_N: Doubles) -> Doubles:
    """Inverse variances, scaled to a mean of 1; equal ones where nothing varies at all."""
    if not variances_N.min() > 0:
        return np.ones_like(variances_N)
    weights_N = 1 / variances_N
    return np.asarray(weights_N / weights_N.mean(), dtype=np.float64)


def _slope(made_N: Doubles, judged_N: Doubles, noise_N: Doubles, weights_N: Doubles) -> tuple[float, float]:
    """The slope, at least 0, and the sum of squares it is over: the made gains' less that of their errors."""
    squares = float(np.sum(weights_N * made_N**2))
    signal = max(squares - float(np.sum(weights_N * noise_N)), LEAST_SIGNAL * squares)
    return max(float(np.sum(weights_N * made_N * judged_N)) / signal, 0.0), signal


def _freedom(residuals_N: Doubles, groups_N: Ints) -> float:
    """Degrees of freedom of the residuals' mean square; at least 1."""
    squares_C = np.bincount(groups_N, residuals_N**2)
    products = float(np.sum(np.bincount(groups_N, residuals_N) ** 2 - squares_C))
    sizes_C = np.bincount(groups_N)
    pairs, total = int(np.sum(sizes_C * (sizes_C - 1))), float(np.mean(residuals_N**2))
    correlation = min(max(products / pairs / total, 0.0), 1.0) if pairs and total else 0.0
    worth = len(residuals_N) / (1 + (float(sizes_C.mean()) - 1) * correlation**2)
    return max(worth - 1, 1.0)


def _between(residuals_N: Doubles, noise_N: Doubles, weights_N: Doubles, freedom: float) -> float:
    """between², never negative; see `fit_calibration`."""
    weight = float(weights_N.sum())
    total = float(np.sum(weights_N * residuals_N**2)) / weight * (freedom + 1) / freedom
    moment = total - float(np.sum(weights_N * noise_N)) / weight
    error = total * math.sqrt(2 / freedom)
    if not error:
        return 0.0
    hazard = math.exp(stats.norm.logpdf(moment / error) - stats.norm.logcdf(moment / error))
    return max(moment + error * hazard, 0.0)


KindOf = Callable[[GainRecord], str]
"""The kind of system that a record is of; kinds are fitted apart."""


def one_kind(record: GainRecord) -> str:
    return "all"


def fit_kinds(
    records: Sequence[GainRecord], kind_of: KindOf = one_kind, priors: Mapping[str, Fit] | None = None
) -> dict[str, Fit]:
    """Kind -> the model that fits its records.

    Args:
        priors: kind -> what holds where there are too few, and counts beside them; none: `PRIOR` for one kind of all.
            Where made gains tell nothing, the prior has no shrink (`fit_constant`).
    """
    found = {}
    for kind, prior in (priors or {"all": PRIOR}).items():
        own = [one for one in records if kind_of(one) == kind]
        if prior.shrink == 0:
            found[kind] = fit_constant(own, prior)
        else:
            fit = fit_calibration(own)
            found[kind] = with_prior(fit, prior) if fit.collections else prior
    return found


def fit_constant(records: Sequence[GainRecord], prior: Fit) -> Fit:
    """The model without made gains: expected is the mean of the judged gains, each collection's once.

    The prior's mean counts as one more collection, and its scatter as in `with_prior`. `between` is that of a new
    collection around the mean of these, whose own error it includes.
    """
    names = tuple(dict.fromkeys(one.collection for one in records))
    if not names:
        return prior
    means_C = np.array([np.mean([one.judged for one in records if one.collection == name]) for name in names])
    scatter = Variance(prior.between**2, prior.freedom)
    if len(names) > 1:
        scatter = scatter.pooled(Variance(float(np.var(means_C, ddof=1)), len(names) - 1))
    count = len(names) + 1
    bias = (prior.bias - float(means_C.sum())) / count
    between = math.sqrt(scatter.value * (1 + 1 / count))
    return Fit(0.0, between, scatter.freedom, bias=bias, collections=names, gains=len(records))


def with_prior(fit: Fit, prior: Fit) -> Fit:
    """The fit, with `between` weighed against what is assumed of it: systems of one collection scatter together, so C
    collections are worth C - 1 degrees of freedom, beside the prior's own. Predicted from two others alone, 72% of the
    gains of three collections lay within 90% intervals, so weighed 94% (docs/results/choose.md).
    """
    own = max(len(fit.collections) - 1, 1)
    found = Variance(prior.between**2, prior.freedom).pooled(Variance(fit.between**2, own))
    return replace(fit, between=math.sqrt(found.value), freedom=found.freedom)
