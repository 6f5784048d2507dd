"""From measures on made queries to estimates for real ones, and from these to a recommendation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midmask.arrays import Doubles
from midmask.benchmark.design import BM25
from midmask.benchmark.results import Result, SystemKey
from midmask.choice.agreement import PRIOR, Fit, HeldOutCollection, fit_kinds, leave_one_out
from midmask.choice.calibration_records import GainRecord
from midmask.choice.contenders import MEASURE, WITH_BM25, name_of
from midmask.choice.levels import LevelRecord, level_interval
from midmask.choice.verdict import Recommendation, SystemEstimate
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval

LEVEL = 0.9
"""Of all intervals of a verdict."""

ALIKE = 0.01
"""A difference of the measure that nobody would pay for."""


@dataclass(frozen=True)
class MeasuredSystem:
    """A system's values on the queries of one split. model: folder; "" for BM25."""

    key: SystemKey
    result: Result
    seconds: float
    bytes_per_passage: float
    model: str
    finalist: bool


LEXICAL_PRIOR = Fit(shrink=0.5, between=0.1, freedom=4)
"""Of gains that BM25 has a part in, until two collections have been measured: made queries share their passages' words
far more than people's do, so that half of such a gain is expected, give or take 0.1.
"""

PRIORS = {"encoder": PRIOR, "with BM25": LEXICAL_PRIOR, "bm25": LEXICAL_PRIOR}
"""Kind of system -> what is assumed of its gains over an encoder."""


def kind_of(system: str, representation: str) -> str:
    """The kind of a system by its names in a verdict: BM25, an encoder with BM25, or an encoder."""
    if system == BM25:
        return BM25
    return "with BM25" if representation.endswith(WITH_BM25) else "encoder"


def record_kind(record: GainRecord) -> str:
    """The kind of the system that a record is of."""
    return kind_of(*record.system.split(" · "))


def held_out(records: Sequence[GainRecord]) -> list[HeldOutCollection]:
    """How well each collection would have been predicted from the others."""
    return leave_one_out(records, LEVEL, record_kind, PRIORS)


@dataclass(frozen=True)
class Experience:
    """What collections with judgements have taught. gains: kind of system -> of its gains. levels: of the baseline's
    own measure.
    """

    gains: Mapping[str, Fit]
    levels: Sequence[LevelRecord]

    @classmethod
    def of(cls, records: Sequence[GainRecord], levels: Sequence[LevelRecord]) -> "Experience":
        """Kinds of systems are fitted apart, since made queries favour words."""
        fits = fit_kinds(records, record_kind, PRIORS)
        return cls(fits, levels)

    def gain(self, key: SystemKey, own: Result, baseline: Result) -> IntervalEstimate:
        """The gain of a system over the baseline on queries that people ask."""
        return self.gains[kind_of(*name_of(key))].gain(paired(own, baseline), LEVEL)

    def is_behind(self, one: "MeasuredSystem", best: "MeasuredSystem", baseline: Result) -> bool:
        """Whether the interval of a system's difference from the best one lies below 0. What scatters around the gains
        of two systems of one kind is the same, of two kinds it adds up.
        """
        kinds = {kind_of(*name_of(key)): key for key in (one.key, best.key)}
        apart = self.gain(one.key, one.result, baseline).value - self.gain(best.key, best.result, baseline).value
        fits = [self.gains[kind] for kind in kinds]
        sampling = Variance.of_mean(paired(one.result, best.result))
        variances = [sampling, *(Variance(fit.between**2, fit.freedom) for fit in fits)]
        return interval(apart, variances, 1 - LEVEL).high < 0


def paired(own: Result, other: Result) -> Doubles:
    """Differences on the queries that both have."""
    values, others = by_query(own.per_query, MEASURE), by_query(other.per_query, MEASURE)
    return np.array([value - others[query] for query, value in values.items() if query in others], dtype=np.float64)


def estimates(
    measured: Sequence[MeasuredSystem], baseline: Mapping[str, Result], known: Experience
) -> tuple[SystemEstimate, ...]:
    """All systems by rank: finalists first, each group by its estimated gain.

    Args:
        baseline: split -> the baseline's result on its queries, that gains are paired with.
    """
    found = [_estimate(one, baseline[one.result.split], known) for one in measured]
    found.sort(key=lambda one: (not one.finalist, -one.gain, one.seconds, one.label))
    return tuple(replace(one, rank=rank) for rank, one in enumerate(found, start=1))


def _estimate(one: MeasuredSystem, baseline: Result, known: Experience) -> SystemEstimate:
    system, representation = name_of(one.key)
    gain, low, high = 0.0, 0.0, 0.0
    if one.key != baseline.key:
        found = known.gain(one.key, one.result, baseline)
        gain, low, high = found.value, found.low, found.high
    level = level_interval(baseline.measures[MEASURE], known.levels, LEVEL)
    return SystemEstimate(
        system=system,
        representation=representation,
        rank=0,
        estimate=_share(level[0] + gain),
        low=_share(level[0] + gain - float(np.hypot(level[0] - level[1], gain - low))),
        high=_share(level[0] + gain + float(np.hypot(level[2] - level[0], high - gain))),
        gain=gain,
        gain_low=low,
        gain_high=high,
        seconds=one.seconds,
        bytes_per_passage=one.bytes_per_passage,
        model=one.model,
        finalist=one.finalist,
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def recommend(
    systems: Sequence[SystemEstimate], measured: Sequence[MeasuredSystem], baseline: Result, known: Experience
) -> Recommendation:
    """The cheapest of the finalists that are within `ALIKE` of the best one and cannot be told from it.

    Intervals alone would not do: where little is known all systems are alike, and the cheapest may lose much.
    """
    by_name = {name_of(one.key): one for one in measured}
    finalists = [one for one in systems if one.finalist]
    best = finalists[0]
    near = [one for one in finalists if best.gain - one.gain <= ALIKE]
    first = by_name[best.name]
    alike = [one for one in near if one is best or not known.is_behind(by_name[one.name], first, baseline)]
    chosen = min(alike, key=lambda one: (one.seconds, one.bytes_per_passage, one.rank))
    distinguishable = chosen.gain_low > 0
    over = next(one.label for one in systems if one.name == name_of(baseline.key))
    return Recommendation(*chosen.name, distinguishable, _reason(chosen, best, alike, over))


def _reason(chosen: SystemEstimate, best: SystemEstimate, alike: Sequence[SystemEstimate], baseline: str) -> str:
    points = 100 * chosen.gain
    gain = (
        f"{points:+.1f} points of {MEASURE} over {baseline} "
        f"({100 * chosen.gain_low:+.1f} to {100 * chosen.gain_high:+.1f})"
    )
    if len(alike) > 1 and chosen is not best:
        return (
            f"Not distinguishable: {len(alike)} systems may be the best one. Take the cheapest, which is "
            f"{chosen.label}: {gain}."
        )
    if chosen.label == baseline:
        return f"Nothing that was tried is better than {baseline}: take it as it is."
    if chosen.gain_low <= 0:
        return f"{chosen.label} did best, but whether it helps is not certain: {gain}."
    return f"{chosen.label} is the best: {gain}."
