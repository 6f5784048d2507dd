"""Estimates gains on people's queries from measures on made queries, and recommends a system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from midmask.benchmark.results import Result
from midmask.choice.calibration import (
    COVERAGE,
    LEVEL,
    Kind,
    Offset,
    Prediction,
    kind_of,
    level_interval,
    sum_interval,
)
from midmask.choice.contenders import MEASURE, System
from midmask.choice.report import named
from midmask.choice.verdict import Recommendation, SystemEstimate
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval

ALIKE = 0.01
"""A difference of the measure that nobody would pay for."""


@dataclass(frozen=True)
class MeasuredSystem:
    """A system of the contest, with its result on one split and its costs."""

    system: System
    result: Result
    seconds: float
    bytes_per_passage: float
    model: str  # folder; "" for BM25
    finalist: bool


@dataclass(frozen=True)
class Gains:
    """Gains over the baseline of a verdict, as measured on made queries and as expected for people's queries.

    A system and its reference differ only in training, so that the made queries' bias towards shared words, and the
    size of the searched collection, are the same for both. References are given as split -> result.
    """

    offsets: Mapping[Kind, Offset]  # what collections with judgements have shown
    baseline: Mapping[str, Result]  # of the verdict
    # The untrained encoder with BM25: the reference of trained encoders with BM25; None if it was not measured.
    joined: Mapping[str, Result] | None = None

    def reference_of(self, system: System) -> Mapping[str, Result]:
        """The reference of a system: split -> result."""
        is_dense_joined = system.joined and system.representation == "dense"
        if self.joined is None or not is_dense_joined or system.key == self.joined["test"].key:
            return self.baseline
        return self.joined

    def measured(self, result: Result) -> IntervalEstimate:
        """The gain of a system over the baseline on the made queries of its split."""
        if result.key == self.baseline["test"].key:
            return IntervalEstimate(0.0, 0.0, 0.0, 0.0, 1.0)
        gain = mean_gain(result, self.baseline[result.split])
        return interval(gain.value, [gain.variance], 1 - COVERAGE)

    def expected(self, result: Result) -> IntervalEstimate:
        """The gain of a system over the baseline on queries that people ask: the sum along its path."""
        parts = []
        for pair in self._path(result):
            kind = _kind(*pair)
            parts.append(Prediction(kind, self.offsets[kind], *mean_gain(*pair)))
        return sum_interval(parts)

    def is_behind(self, result: Result, best: Result) -> bool:
        """Whether the interval of a system's difference from the best one lies below 0. An offset that is the same for
        all systems of a kind cancels in this difference.
        """
        apart = self.expected(result).value - self.expected(best).value
        kinds, others = ({_kind(*pair) for pair in self._path(each)} for each in (result, best))
        counted = (kinds ^ others) | {kind for kind in kinds & others if not kind.is_shared}
        variances = [self.offsets[kind].variance for kind in sorted(counted)]
        return interval(apart, [mean_gain(result, best).variance, *variances], 1 - COVERAGE).high < 0

    def _path(self, result: Result) -> list[tuple[Result, Result]]:
        """Pairs whose gains add up to the gain over the baseline: a system and its reference, and so on up to it."""
        reference = self.reference_of(System.of(result.key))
        pairs = [] if result.key == self.baseline["test"].key else [(result, reference[result.split])]
        return pairs if reference is self.baseline else [*pairs, *self._path(reference["test"])]


def _kind(result: Result, over: Result) -> Kind:
    return kind_of(System.of(result.key), over_joined=System.of(over.key).joined)


class MeanGain(NamedTuple):
    """The mean of paired differences, and the variance of that mean."""

    value: float
    variance: Variance


def mean_gain(result: Result, other: Result) -> MeanGain:
    """The gain of a result over another one, on the queries that both have."""
    values, others = by_query(result.per_query, MEASURE), by_query(other.per_query, MEASURE)
    differences = np.array([values[query] - others[query] for query in values if query in others], dtype=np.float64)
    return MeanGain(float(differences.mean()), Variance.of_mean(differences))


def estimates(systems: Sequence[MeasuredSystem], gains: Gains) -> tuple[SystemEstimate, ...]:
    """All systems by rank: finalists first, each group by its estimated gain."""
    rows = [_estimate(system, gains) for system in systems]
    rows.sort(key=lambda row: (not row.finalist, -row.gain, row.seconds, row.label))
    return tuple(replace(row, rank=rank) for rank, row in enumerate(rows, start=1))


def _estimate(measured: MeasuredSystem, gains: Gains) -> SystemEstimate:
    system, representation = measured.system.name
    gain, made = gains.expected(measured.result), gains.measured(measured.result)
    level = level_interval(gains.baseline[measured.result.split].measures[MEASURE], gains.offsets[LEVEL])
    estimate = level.value + gain.value
    return SystemEstimate(
        system=system,
        representation=representation,
        joined=measured.system.joined,
        rank=0,
        estimate=_share(estimate),
        low=_share(estimate - float(np.hypot(level.value - level.low, gain.value - gain.low))),
        high=_share(estimate + float(np.hypot(level.high - level.value, gain.high - gain.value))),
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        seconds=measured.seconds,
        bytes_per_passage=measured.bytes_per_passage,
        model=measured.model,
        finalist=measured.finalist,
        made_gain=made.value,
        made_low=made.low,
        made_high=made.high,
        training=measured.system.training,
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def recommend(ranked: Sequence[SystemEstimate], systems: Sequence[MeasuredSystem], gains: Gains) -> Recommendation:
    """The cheapest of the finalists that are within `ALIKE` of the best one and cannot be told from it.

    Intervals alone would not do: where little is known all systems are alike, and the cheapest may lose much.
    """
    results = {each.system.name: each.result for each in systems}
    best = ranked[0]
    near = [row for row in ranked if row.finalist and best.gain - row.gain <= ALIKE]
    alike = [row for row in near if row is best or not gains.is_behind(results[row.name], results[best.name])]
    chosen = min(alike, key=lambda row: (row.seconds, row.bytes_per_passage, row.rank))
    over = System.of(gains.baseline["test"].key)
    return Recommendation(*chosen.name, chosen.gain_low > 0, _reason(chosen, best, alike, str(over)))


def _reason(chosen: SystemEstimate, best: SystemEstimate, alike: Sequence[SystemEstimate], baseline: str) -> str:
    """A sentence on why this system is recommended, without figures, which are in the headline."""
    if len(alike) > 1 and chosen is not best:
        return f"{len(alike)} systems may be the best one; {named(chosen.label)} is the cheapest of them."
    if chosen.label == baseline:
        return f"Nothing that was tried is better than {named(baseline)}: take it as it is."
    if chosen.gain_low <= 0:
        return f"{named(chosen.label)} has the largest expected gain, but whether people would see it is not certain."
    return f"{named(chosen.label)} has the largest expected gain."
