"""How well values on made queries predict values on people's queries, from records of collections that have both.

The package has two files of records: `calibration.jsonl` (gains of a system) and `levels.jsonl` (scores). A level is
known far less well than a gain: made queries are as hard as their source makes them, people's as hard as people do, so
the two differ by an offset that varies from collection to collection.

The model of gains, for system k on collection c:

    real gain = shrink · (gain on all queries that could be made) - bias + N(0, between²)

`shrink` is what remains of a gain when people ask, `bias` a gain that people would not see, and `between` how far
single systems and collections scatter around that line. Gains are differences of a measure from a baseline, so the
baseline has gain 0 on both sides, and `bias` is 0 unless somebody knows better: a few collections cannot tell it from
`shrink`. Without records, intervals have a prior's width (`PRIOR`). `leave_one_out` tells how well the gains of each
collection are predicted from the records of all others.

N gains, C collections. Everything is float64.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from midmask.choice.verdict import Calibration
from midmask.core.arrays import Doubles, Ints
from midmask.errors import UserError, quoted
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval, rank_correlation

GAINS_FILE = Path(__file__).with_name("calibration.jsonl")


@dataclass(frozen=True)
class GainRecord:
    """A system's gain over another one on a collection, in units of the measure (nDCG@10 counts from 0 to 1).

    over: label of the other system, whose own gain is another record; "" for the baseline of the collection. source:
    kind of the made queries, such as titles, or `all`. system: its label. made, judged: mean of the paired differences
    over made queries and over people's; made_error, judged_error: the standard errors of these means. seed: of the
    verdict; those of several seeds of one collection are held out together.
    """

    collection: str
    source: str
    system: str
    made: float
    made_error: float
    judged: float
    judged_error: float
    over: str = ""
    seed: int = 0


TEXTS = ("collection", "source", "system", "over")


def load_records(path: Path = GAINS_FILE) -> list[GainRecord]:
    """The records of a file, in its order; blank lines are skipped.

    Raises:
        UserError: for a file that cannot be read, or a line that is no record.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: calibration records cannot be read: {error}. Give a file of JSON lines.") from error
    return [_record(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def write_records(records: Iterable[GainRecord], path: Path) -> None:
    """Writes one record a line; `load_records` reads the same values back."""
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in records), "utf-8")


def _record(line: str, where: str) -> GainRecord:
    names = [field.name for field in fields(GainRecord)]
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: no JSON ({error}). Each line is an object with {', '.join(names)}.") from error
    if not isinstance(found, dict) or sorted(found) != sorted(names):
        raise UserError(f"{where}: {quoted(found)} is no record. Each line is an object with {', '.join(names)}.")
    for name, value in found.items():
        if name in TEXTS:
            valid, wanted = isinstance(value, str), "a text"
        else:
            valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            valid, wanted = valid and (value >= 0 or not name.endswith("_error")), "a finite number"
            wanted += " of at least 0" if name.endswith("_error") else ""
        if not valid:
            raise UserError(f"{where}: {name} = {quoted(value)}; it has to be {wanted}.")
    return GainRecord(**found)


LEVELS_FILE = Path(__file__).with_name("levels.jsonl")

PRIOR_SPREAD, PRIOR_FREEDOM = 0.15, 4
"""Standard deviation of offsets of nDCG@10 that is assumed until two collections have been measured, and how many
degrees of freedom it counts as afterwards.
"""


@dataclass(frozen=True)
class LevelRecord:
    """The baseline's measure on made and on judged queries of a collection; source: of the made queries."""

    collection: str
    source: str
    made: float
    judged: float


def load_levels(path: Path = LEVELS_FILE) -> list[LevelRecord]:
    return [LevelRecord(**json.loads(line)) for line in path.read_text("utf-8").splitlines() if line.strip()]


def write_levels(records: Iterable[LevelRecord], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in records), "utf-8")


def level_interval(made: float, records: Sequence[LevelRecord], coverage: float) -> tuple[float, float, float]:
    """(estimate, low, high) of the measure on queries that people ask.

    A prediction interval of a new collection's offset: mean ± t · s · sqrt(1 + 1/n) over n collections, each the mean
    of its records. In s² the prior's variance counts as its degrees of freedom beside n - 1, as in
    `with_prior`.
    """
    names = dict.fromkeys(one.collection for one in records)
    offsets = [np.mean([one.judged - one.made for one in records if one.collection == name]) for name in names]
    if len(offsets) < 2:
        middle, margin = made, float(stats.norm.ppf((1 + coverage) / 2)) * PRIOR_SPREAD
    else:
        own = Variance(float(np.var(offsets, ddof=1)), len(offsets) - 1)
        found = Variance(PRIOR_SPREAD**2, PRIOR_FREEDOM).pooled(own)
        spread, wide = math.sqrt(found.value), float(stats.t.ppf((1 + coverage) / 2, found.freedom))
        middle, margin = made + float(np.mean(offsets)), wide * spread * math.sqrt(1 + 1 / len(offsets))
    return middle, middle - margin, middle + margin


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


@dataclass(frozen=True)
class HeldOutCollection:
    """How a fit on all other collections did on this one, for the queries of one source that one seed made.

    systems: number of gains, the baseline not counted. kendall_tau: of all systems with the baseline, between expected
    and judged gains; None where all are equal. regret: in units of the measure. covered: number of judged gains within
    their stated intervals. covered_with_noise: the same when intervals are widened by the judged gains' own standard
    errors, which stated intervals leave out because they are about all queries that people would ask.
    """

    collection: str
    source: str
    seed: int
    systems: int
    kendall_tau: float | None
    regret: float
    covered: int
    covered_with_noise: int
    fits: Mapping[str, Fit]


def leave_one_out(
    records: Sequence[GainRecord],
    coverage: float,
    kind_of: KindOf = one_kind,
    priors: Mapping[str, Fit] | None = None,
) -> list[HeldOutCollection]:
    """Each collection's judged gains against those that a fit on the records of all other collections expects.

    Sources and seeds of one collection are held out together and reported apart, in the order of the records.
    """
    found = []
    for collection in dict.fromkeys(one.collection for one in records):
        fits = fit_kinds([one for one in records if one.collection != collection], kind_of, priors)
        held = [one for one in records if one.collection == collection]
        for verdict in dict.fromkeys((one.source, one.seed) for one in held):
            found.append(_evaluate(fits, [one for one in held if (one.source, one.seed) == verdict], coverage, kind_of))
    return found


def _evaluate(
    fits: Mapping[str, Fit], records: Sequence[GainRecord], coverage: float, kind_of: KindOf
) -> HeldOutCollection:
    by_label = {one.system: one for one in records}
    expected, judged = [0.0], [0.0]
    covered = [0, 0]
    for one in records:
        parts = [one, *([by_label[one.over]] if one.over else [])]
        fitted = [(fits[kind_of(part)], part.made, Variance(part.made_error**2, KNOWN)) for part in parts]
        judged.append(sum(part.judged for part in parts))
        for number, noise in enumerate((0.0, sum(part.judged_error**2 for part in parts))):
            found = sum_interval(fitted, coverage, noise=noise)
            covered[number] += found.low <= judged[-1] <= found.high
        expected.append(found.value)
    return HeldOutCollection(
        collection=records[0].collection,
        source=records[0].source,
        seed=records[0].seed,
        systems=len(records),
        kendall_tau=kendall_tau(expected, judged),
        regret=regret(expected, judged),
        covered=covered[0],
        covered_with_noise=covered[1],
        fits=fits,
    )


def calibration(results: Sequence[HeldOutCollection], coverage: float, source: str = "") -> Calibration:
    """The figures that a verdict shows. Coverage is of the stated intervals, a share of all gains; tau is the mean over
    the results that have one.

    Args:
        coverage: that the intervals state. source: the command and file that the records come from.

    Raises:
        UserError: if there is no result, or none with a tau.
    """
    taus = [one.kendall_tau for one in results if one.kendall_tau is not None]
    if not taus:
        raise UserError(
            f"calibration: {len(results)} held-out results, none with a ranking of systems; give records of at least "
            "one collection with two systems that differ"
        )
    share = sum(one.covered for one in results) / sum(one.systems for one in results)
    names = tuple(dict.fromkeys(one.collection for one in results))
    return Calibration(names, math.fsum(taus) / len(taus), share, coverage, source)
