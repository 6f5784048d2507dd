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
    """A system's gain over another one on a collection, in units of the measure (nDCG@10 counts from 0 to 1)."""

    collection: str
    source: str  # kind of the made queries, such as titles, or `all`
    system: str  # label
    made: float  # mean of the paired differences over made queries
    made_error: float  # standard error of `made`
    judged: float  # mean of the paired differences over people's queries
    judged_error: float  # standard error of `judged`
    over: str = ""  # label of the other system, whose own gain is another record; "" for the collection's baseline
    seed: int = 0  # of the verdict; all seeds of one collection are held out together


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
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), "utf-8")


def _record(line: str, where: str) -> GainRecord:
    names = [field.name for field in fields(GainRecord)]
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: no JSON ({error}). Each line is an object with {', '.join(names)}.") from error
    if not isinstance(row, dict) or sorted(row) != sorted(names):
        raise UserError(f"{where}: {quoted(row)} is no record. Each line is an object with {', '.join(names)}.")
    for name, value in row.items():
        if name in TEXTS:
            valid, form = isinstance(value, str), "a text"
        else:
            valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            valid, form = valid and (value >= 0 or not name.endswith("_error")), "a finite number"
            form += " of at least 0" if name.endswith("_error") else ""
        if not valid:
            raise UserError(f"{where}: {name} = {quoted(value)}; it has to be {form}.")
    return GainRecord(**row)


LEVELS_FILE = Path(__file__).with_name("levels.jsonl")

PRIOR_SPREAD, PRIOR_FREEDOM = 0.15, 4
"""Prior standard deviation of a collection's offset of nDCG@10, and the degrees of freedom of this prior."""


@dataclass(frozen=True)
class LevelRecord:
    """The baseline's measure on made and on judged queries of a collection."""

    collection: str
    source: str  # of the made queries
    made: float
    judged: float


def load_levels(path: Path = LEVELS_FILE) -> list[LevelRecord]:
    return [LevelRecord(**json.loads(line)) for line in path.read_text("utf-8").splitlines() if line.strip()]


def write_levels(records: Iterable[LevelRecord], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), "utf-8")


def level_interval(made: float, records: Sequence[LevelRecord], coverage: float) -> tuple[float, float, float]:
    """(estimate, low, high) of the measure on queries that people ask, from its value `made` on made queries.

    A prediction interval of a new collection's offset: mean ± t · s · sqrt(1 + 1/n) over n collections, each the mean
    of its records. s² pools the prior's variance with that of the offsets by degrees of freedom, as `with_prior` does.
    """
    names = dict.fromkeys(row.collection for row in records)
    offsets = [np.mean([row.judged - row.made for row in records if row.collection == name]) for name in names]
    if len(offsets) < 2:
        middle, margin = made, float(stats.norm.ppf((1 + coverage) / 2)) * PRIOR_SPREAD
    else:
        sampled = Variance(float(np.var(offsets, ddof=1)), len(offsets) - 1)
        pooled = Variance(PRIOR_SPREAD**2, PRIOR_FREEDOM).pooled(sampled)
        spread, quantile = math.sqrt(pooled.value), float(stats.t.ppf((1 + coverage) / 2, pooled.freedom))
        middle, margin = made + float(np.mean(offsets)), quantile * spread * math.sqrt(1 + 1 / len(offsets))
    return middle, middle - margin, middle + margin


KNOWN = 1e9
"""Degrees of freedom of an exactly known variance: Student's t with so many is the normal distribution."""


ROUNDS = 100
CLOSE = 1e-12
"""Change of between² at which the iteration ends: a millionth of a difference of 0.001, squared."""

LEAST_SIGNAL = 1 / 3
"""Least fraction of the made gains' sum of squares that is taken as signal: bounds the correction of the slope."""


@dataclass(frozen=True)
class Fit:
    """Estimated parameters of the model of gains that the module describes."""

    shrink: float
    between: float
    freedom: float  # degrees of freedom of `between`
    shrink_error: float = 0.0  # standard error of `shrink`
    bias: float = 0.0
    collections: tuple[str, ...] = ()  # that it was estimated from; empty for a prior
    gains: int = 0  # number of gains that it was estimated from

    def expected(self, gain: float) -> float:
        """The expected real gain, given the mean gain on made queries."""
        return self.shrink * gain - self.bias

    def variances(self, gain: float, sampling: Variance) -> list[Variance]:
        """The variances of the real gain around the expected one: of the sample, the slope, and between systems."""
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
        coverage: confidence level of the interval, such as 0.9.
        noise: variance of another estimate of the real gain; the interval then covers that estimate.
    """
    value = math.fsum(fit.expected(gain) for fit, gain, _ in parts)
    variances = [variance for fit, gain, sampling in parts for variance in fit.variances(gain, sampling)]
    return interval(value, [*variances, Variance(noise, KNOWN)], 1 - coverage)


PRIOR = Fit(shrink=1.0, between=0.02, freedom=4)
"""The model that is assumed until there are records of two collections: a made gain at face value, with a standard
deviation of 0.02 of real gains around it, so that a 90% interval reaches about 0.043 or more to each side (t with four
degrees of freedom). Gains of middle training are about 0.01 to 0.05 of nDCG@10.
"""


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau-b of two measurements of the same systems; None for fewer than two, or if all are equal."""
    return rank_correlation(a, b).tau


def regret(estimates: Sequence[float], judged: Sequence[float]) -> float:
    """The regret of choosing by estimate: the best judged value less that of the system with the highest estimate.

    Of equal estimates the first counts. Never negative.
    """
    if len(estimates) != len(judged) or not len(judged):
        raise ValueError(f"{len(estimates)} estimates and {len(judged)} judged values; both need one for each system")
    return float(max(judged) - judged[int(np.argmax(estimates))])


def fit_calibration(records: Sequence[GainRecord]) -> Fit:
    """Fits the model of gains; returns `PRIOR` for fewer than two collections, or if no made gain differs from 0.

    `shrink` is the slope of a line through the origin with errors in both variables, and `between` is the scatter
    beyond these errors (DerSimonian and Laird's moments, iterated with the slope).

    Two quantities are easily underestimated from few collections:

    - Systems of one collection share its baseline and its quirks. N residuals with the intra-class correlation rho are
      worth N / (1 + (N/C - 1) · rho²) independent ones. That number, less one for the slope, is the degrees of freedom.
    - A moment estimate of between² is often negative. Cut off at 0 it would mean no scatter at all. Its posterior mean
      under a flat prior over between² >= 0 is taken instead: the estimate itself where it is well above its standard
      error, and about 0.8 standard errors where it is 0.
    """
    names = tuple(dict.fromkeys(record.collection for record in records))
    made_N = np.array([record.made for record in records], dtype=np.float64)
    if len(names) < 2 or not made_N.any():
        return PRIOR
    judged_N = np.array([record.judged for record in records], dtype=np.float64)
    made_noise_N = np.array([record.made_error**2 for record in records], dtype=np.float64)
    judged_noise_N = np.array([record.judged_error**2 for record in records], dtype=np.float64)
    groups_N = np.array([names.index(record.collection) for record in records])

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
    """Inverse variances, scaled to a mean of 1; equal weights if a variance is 0."""
    if not variances_N.min() > 0:
        return np.ones_like(variances_N)
    weights_N = 1 / variances_N
    return np.asarray(weights_N / weights_N.mean(), dtype=np.float64)


def _slope(made_N: Doubles, judged_N: Doubles, noise_N: Doubles, weights_N: Doubles) -> tuple[float, float]:
    """The slope, at least 0, and its denominator: the made gains' sum of squares less that of their errors."""
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
    """The estimate of between², never negative; see `fit_calibration`."""
    weight = float(weights_N.sum())
    total = float(np.sum(weights_N * residuals_N**2)) / weight * (freedom + 1) / freedom
    moment = total - float(np.sum(weights_N * noise_N)) / weight
    error = total * math.sqrt(2 / freedom)
    if not error:
        return 0.0
    hazard = math.exp(stats.norm.logpdf(moment / error) - stats.norm.logcdf(moment / error))
    return max(moment + error * hazard, 0.0)


KindOf = Callable[[GainRecord], str]
"""The kind of a record's gain; each kind gets its own fit."""


def one_kind(record: GainRecord) -> str:
    return "all"


def fit_kinds(
    records: Sequence[GainRecord], kind_of: KindOf = one_kind, priors: Mapping[str, Fit] | None = None
) -> dict[str, Fit]:
    """Fits a model to the records of each kind: kind -> fit.

    Args:
        priors: kind -> its prior, which is returned for too few records and pooled with the fit otherwise; None:
            `PRIOR` for a single kind. A prior with a shrink of 0 asks for `fit_constant`.
    """
    fits = {}
    for kind, prior in (priors or {"all": PRIOR}).items():
        rows = [record for record in records if kind_of(record) == kind]
        if prior.shrink == 0:
            fits[kind] = fit_constant(rows, prior)
        else:
            fit = fit_calibration(rows)
            fits[kind] = with_prior(fit, prior) if fit.collections else prior
    return fits


def fit_constant(records: Sequence[GainRecord], prior: Fit) -> Fit:
    """Fits a model that ignores made gains: it expects the mean of the collections' mean judged gains.

    The prior's mean counts as one more collection, and its scatter is pooled as in `with_prior`. `between` is the
    standard deviation of a new collection around this mean, and includes the error of the mean.
    """
    names = tuple(dict.fromkeys(record.collection for record in records))
    if not names:
        return prior
    means_C = np.array([np.mean([row.judged for row in records if row.collection == name]) for name in names])
    scatter = Variance(prior.between**2, prior.freedom)
    if len(names) > 1:
        scatter = scatter.pooled(Variance(float(np.var(means_C, ddof=1)), len(names) - 1))
    count = len(names) + 1
    bias = (prior.bias - float(means_C.sum())) / count
    between = math.sqrt(scatter.value * (1 + 1 / count))
    return Fit(0.0, between, scatter.freedom, bias=bias, collections=names, gains=len(records))


def with_prior(fit: Fit, prior: Fit) -> Fit:
    """The fit, with `between` pooled with the prior's. Systems of one collection scatter together, so C collections
    count as C - 1 degrees of freedom beside those of the prior (docs/results/choose.md).
    """
    freedom = max(len(fit.collections) - 1, 1)
    pooled = Variance(prior.between**2, prior.freedom).pooled(Variance(fit.between**2, freedom))
    return replace(fit, between=math.sqrt(pooled.value), freedom=pooled.freedom)


@dataclass(frozen=True)
class HeldOutCollection:
    """How well a fit on all other collections predicts this one, for the queries of one source that one seed made."""

    collection: str
    source: str
    seed: int
    systems: int  # number of gains, without the baseline
    kendall_tau: float | None  # between expected and judged gains, with the baseline; None where all are equal
    regret: float  # in units of the measure
    covered: int  # number of judged gains within their stated intervals
    # The same with intervals widened by the judged gains' standard errors. Stated intervals do not include these,
    # because they are about all queries that people would ask.
    covered_with_noise: int
    fits: Mapping[str, Fit]


def leave_one_out(
    records: Sequence[GainRecord],
    coverage: float,
    kind_of: KindOf = one_kind,
    priors: Mapping[str, Fit] | None = None,
) -> list[HeldOutCollection]:
    """Compares each collection's judged gains with those expected by a fit on the records of all other collections.

    Sources and seeds of one collection are held out together and reported apart, in the order of the records.
    """
    results = []
    for collection in dict.fromkeys(record.collection for record in records):
        fits = fit_kinds([record for record in records if record.collection != collection], kind_of, priors)
        held = [record for record in records if record.collection == collection]
        for verdict in dict.fromkeys((row.source, row.seed) for row in held):
            rows = [row for row in held if (row.source, row.seed) == verdict]
            results.append(_evaluate(fits, rows, coverage, kind_of))
    return results


def _evaluate(
    fits: Mapping[str, Fit], records: Sequence[GainRecord], coverage: float, kind_of: KindOf
) -> HeldOutCollection:
    by_label = {record.system: record for record in records}
    expected, judged = [0.0], [0.0]
    covered = [0, 0]
    for record in records:
        parts = [record, *([by_label[record.over]] if record.over else [])]
        fitted = [(fits[kind_of(part)], part.made, Variance(part.made_error**2, KNOWN)) for part in parts]
        judged.append(sum(part.judged for part in parts))
        for number, noise in enumerate((0.0, sum(part.judged_error**2 for part in parts))):
            estimate = sum_interval(fitted, coverage, noise=noise)
            covered[number] += estimate.low <= judged[-1] <= estimate.high
        expected.append(estimate.value)
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
    """Summarises held-out results for a verdict: the fraction of all gains within their stated intervals, and the mean
    Kendall's tau over the results that have one.

    Args:
        coverage: confidence level of the intervals.
        source: command and file that the records come from.

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
