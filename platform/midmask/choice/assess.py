"""From measures on made queries to estimates for real ones, and from these to a recommendation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midmask.benchmark.results import Result, SystemKey
from midmask.choice.agreement import Fit
from midmask.choice.entrants import MEASURE, name_of
from midmask.choice.levels import LevelRecord, level_interval
from midmask.choice.verdict import Recommendation, SystemEstimate
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance

LEVEL = 0.9
"""Of all intervals of a verdict."""

ALIKE = 0.01
"""A difference of the measure that nobody would pay for."""


@dataclass(frozen=True)
class Measured:
    """A system's values on the queries of one split. model: folder; "" for BM25."""

    key: SystemKey
    result: Result
    seconds: float
    bytes_per_passage: float
    model: str
    finalist: bool


@dataclass(frozen=True)
class Experience:
    """What collections with judgements have taught. gains: of differences. levels: of the baseline's own measure."""

    gains: Fit
    levels: Sequence[LevelRecord]

    def gain(self, own: Result, other: Result) -> IntervalEstimate:
        """The gain of one system over another on queries that people ask."""
        values, others = by_query(own.per_query, MEASURE), by_query(other.per_query, MEASURE)
        paired = np.array([value - others[query] for query, value in values.items() if query in others])
        return self.gains.interval(float(paired.mean()), Variance.of_mean(paired), LEVEL)


def estimates(
    measured: Sequence[Measured], baseline: Mapping[str, Result], known: Experience
) -> tuple[SystemEstimate, ...]:
    """All systems by rank: finalists first, each group by its estimated gain.

    Args:
        baseline: split -> the baseline's result on its queries, that gains are paired with.
    """
    found = [_estimate(one, baseline[one.result.split], known) for one in measured]
    found.sort(key=lambda one: (not one.finalist, -one.gain, one.seconds, one.label))
    return tuple(replace(one, rank=rank) for rank, one in enumerate(found, start=1))


def _estimate(one: Measured, baseline: Result, known: Experience) -> SystemEstimate:
    system, representation = name_of(one.key)
    gain, low, high = 0.0, 0.0, 0.0
    if one.key != baseline.key:
        found = known.gain(one.result, baseline)
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
    systems: Sequence[SystemEstimate], measured: Sequence[Measured], baseline: str, known: Experience
) -> Recommendation:
    """The cheapest of the finalists that are within `ALIKE` of the best one and cannot be told from it.

    Intervals alone would not do: where little is known all systems are alike, and the cheapest may lose much.
    """
    results = {name_of(one.key): one.result for one in measured}
    finalists = [one for one in systems if one.finalist]
    best = finalists[0]
    near = [one for one in finalists if best.gain - one.gain <= ALIKE]
    alike = [one for one in near if one is best or known.gain(_of(one, results), _of(best, results)).high >= 0]
    chosen = min(alike, key=lambda one: (one.seconds, one.bytes_per_passage, one.rank))
    distinguishable = chosen.gain_low > 0
    return Recommendation(chosen.system, chosen.representation, distinguishable, _reason(chosen, best, alike, baseline))


def _of(one: SystemEstimate, results: Mapping[tuple[str, str], Result]) -> Result:
    return results[one.system, one.representation]


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
