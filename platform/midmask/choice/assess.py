"""Estimates gains on people's queries from measures on made queries, and recommends a system."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midmask.benchmark.design import BM25
from midmask.benchmark.results import Result, SystemKey
from midmask.choice.calibration import (
    PRIOR,
    Fit,
    GainRecord,
    HeldOutCollection,
    LevelRecord,
    fit_kinds,
    leave_one_out,
    level_interval,
    sum_interval,
)
from midmask.choice.contenders import AS_IS, MEASURE, is_joined, name_of, training_of
from midmask.choice.report import named
from midmask.choice.verdict import WITH_BM25, Recommendation, SystemEstimate
from midmask.core.arrays import Doubles
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval

COVERAGE = 0.9
"""Confidence level of all intervals in a verdict."""

ALIKE = 0.01
"""A difference of the measure that nobody would pay for."""


@dataclass(frozen=True)
class MeasuredSystem:
    """A system of the contest, with its result on one split and its costs."""

    key: SystemKey
    result: Result
    seconds: float
    bytes_per_passage: float
    model: str  # folder; "" for BM25
    finalist: bool
    dropped: str = ""  # why it is no finalist


LEXICAL_PRIOR = Fit(shrink=0.5, between=0.1, freedom=4)
"""Prior of gains that involve BM25, used until two collections have been measured: made queries share far more words
with their passages than people's queries do, so half of such a gain is expected, with a standard deviation of 0.1.
"""

JOIN_PRIOR = Fit(shrink=0.0, bias=-0.04, between=0.06, freedom=4)
"""Prior of the gain from joining an encoder's list with BM25's, which made queries do not predict
(docs/results/choose.md). The expected gain is 0.04, with a standard deviation of 0.06, because joined lists are rarely
worse than both of their parts (Bruch et al. 2023).
"""

TRAINED, WORDS, JOIN = "trained", "words", "with BM25"

PRIORS = {TRAINED: PRIOR, WORDS: LEXICAL_PRIOR, JOIN: JOIN_PRIOR, BM25: LEXICAL_PRIOR}
"""Kind of gain -> its prior. trained: a trained encoder over the untrained one, both alone or both with BM25. words:
SPLADE or a hybrid over the untrained encoder, or a trained encoder with BM25 over BM25. with BM25: the untrained
encoder with BM25 over itself. bm25: BM25 over the untrained encoder.
"""

OWN = {TRAINED, WORDS}
"""Kinds of gains that scatter independently for each system; the scatter of other kinds is common to all systems."""


@dataclass(frozen=True)
class Counterparts:
    """The reference results that gains are computed over: split -> result.

    A system and its reference differ only in training, so that the made queries' bias towards shared words, and the
    size of the searched collection, are the same for both.
    """

    baseline: Mapping[str, Result]  # of the verdict
    # The untrained encoder with BM25: the reference of trained encoders with BM25; None if it was not measured.
    joined: Mapping[str, Result] | None = None

    def of(self, key: SystemKey) -> Mapping[str, Result]:
        """The reference of a system: split -> result."""
        if self.joined is None or not is_joined(key) or key == self.joined["test"].key:
            return self.baseline
        return self.joined

    def path(self, own: Result) -> list[tuple[Result, Result]]:
        """Pairs whose gains add up to the gain over the baseline: a system and its reference, and so on up to it."""
        reference = self.of(own.key)
        pairs = [] if own.key == self.baseline["test"].key else [(own, reference[own.split])]
        return pairs if reference is self.baseline else [*pairs, *self.path(reference["test"])]


def kind_of(system: str, representation: str, *, over_joined: bool) -> str:
    """The kind of a gain (a key of `PRIORS`), from the system's name in a verdict and from its reference."""
    if system == BM25:
        return BM25
    if representation.removesuffix(WITH_BM25) != "dense":
        return WORDS
    if over_joined or not representation.endswith(WITH_BM25):
        return TRAINED
    return JOIN if system == AS_IS else WORDS


def record_kind(record: GainRecord) -> str:
    """The kind of a record's gain (a key of `PRIORS`)."""
    system, representation = record.system.split(" · ")
    return kind_of(system, representation, over_joined=bool(record.over))


def held_out(records: Sequence[GainRecord]) -> list[HeldOutCollection]:
    """Predicts each collection's gains from the records of the others, and compares them with the judged gains."""
    return leave_one_out(records, COVERAGE, record_kind, PRIORS)


@dataclass(frozen=True)
class Experience:
    """The calibration learned from collections with judgements."""

    gains: Mapping[str, Fit]  # kind of gain -> its model
    levels: Sequence[LevelRecord]  # of the baseline's measure

    @classmethod
    def of(cls, records: Sequence[GainRecord], levels: Sequence[LevelRecord]) -> "Experience":
        """Fits a model for each kind of gain, because made queries favour systems that match words."""
        return cls(fit_kinds(records, record_kind, PRIORS), levels)

    def gain(self, own: Result, counterparts: Counterparts) -> IntervalEstimate:
        """The gain of a system over the baseline on queries that people ask: the sum along its path."""
        parts = []
        for result, over in counterparts.path(own):
            differences, fit = paired(result, over), self.gains[self._kind(result, over)]
            parts.append((fit, float(differences.mean()), Variance.of_mean(differences)))
        return sum_interval(parts, COVERAGE)

    def is_behind(self, one: "MeasuredSystem", best: "MeasuredSystem", counterparts: Counterparts) -> bool:
        """Whether the interval of a system's difference from the best one lies below 0. Scatter that is common to all
        systems of a kind cancels in this difference.
        """
        apart = self.gain(one.result, counterparts).value - self.gain(best.result, counterparts).value
        own, others = ({self._kind(*pair) for pair in counterparts.path(system.result)} for system in (one, best))
        fits = [self.gains[kind] for kind in sorted((own ^ others) | (own & others & OWN))]
        sampling = Variance.of_mean(paired(one.result, best.result))
        variances = [sampling, *(Variance(fit.between**2, fit.freedom) for fit in fits)]
        return interval(apart, variances, 1 - COVERAGE).high < 0

    @staticmethod
    def _kind(own: Result, over: Result) -> str:
        return kind_of(*name_of(own.key), over_joined=is_joined(over.key))


def paired(own: Result, other: Result, queries: Collection[str] | None = None) -> Doubles:
    """Differences of the measure on the queries that both results have, limited to `queries` if these are given."""
    values, others = by_query(own.per_query, MEASURE), by_query(other.per_query, MEASURE)
    shared = [query for query in values if query in others and (queries is None or query in queries)]
    return np.array([values[query] - others[query] for query in shared], dtype=np.float64)


def estimates(
    measured: Sequence[MeasuredSystem], counterparts: Counterparts, known: Experience
) -> tuple[SystemEstimate, ...]:
    """All systems by rank: finalists first, each group by its estimated gain."""
    rows = [_estimate(system, counterparts, known) for system in measured]
    rows.sort(key=lambda row: (not row.finalist, -row.gain, row.seconds, row.label))
    return tuple(replace(row, rank=rank) for rank, row in enumerate(rows, start=1))


def _estimate(one: MeasuredSystem, counterparts: Counterparts, known: Experience) -> SystemEstimate:
    system, representation = name_of(one.key)
    expected = known.gain(one.result, counterparts)
    gain, low, high = expected.value, expected.low, expected.high
    made = _made_gain(one.result, counterparts)
    level = level_interval(counterparts.baseline[one.result.split].measures[MEASURE], known.levels, COVERAGE)
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
        made_gain=made.value,
        made_low=made.low,
        made_high=made.high,
        training=training_of(one.key),
        dropped=one.dropped,
    )


def _made_gain(own: Result, counterparts: Counterparts) -> IntervalEstimate:
    """The gain over the baseline as it was measured on the made queries of the system's split."""
    if own.key == counterparts.baseline["test"].key:
        return IntervalEstimate(0.0, 0.0, 0.0, 0.0)
    differences = paired(own, counterparts.baseline[own.split])
    return interval(float(differences.mean()), [Variance.of_mean(differences)], 1 - COVERAGE)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def recommend(
    systems: Sequence[SystemEstimate], measured: Sequence[MeasuredSystem], counterparts: Counterparts, known: Experience
) -> Recommendation:
    """The cheapest of the finalists that are within `ALIKE` of the best one and cannot be told from it.

    Intervals alone would not do: where little is known all systems are alike, and the cheapest may lose much.
    """
    by_name = {name_of(system.key): system for system in measured}
    finalists = [row for row in systems if row.finalist]
    best = finalists[0]
    near = [row for row in finalists if best.gain - row.gain <= ALIKE]
    first = by_name[best.name]
    alike = [row for row in near if row is best or not known.is_behind(by_name[row.name], first, counterparts)]
    chosen = min(alike, key=lambda row: (row.seconds, row.bytes_per_passage, row.rank))
    distinguishable = chosen.gain_low > 0
    over = next(row.label for row in systems if row.name == name_of(counterparts.baseline["test"].key))
    return Recommendation(*chosen.name, distinguishable, _reason(chosen, best, alike, over))


def _reason(chosen: SystemEstimate, best: SystemEstimate, alike: Sequence[SystemEstimate], baseline: str) -> str:
    """A sentence on why this system is recommended, without figures, which are in the headline."""
    if len(alike) > 1 and chosen is not best:
        return f"{len(alike)} systems may be the best one; {named(chosen.label)} is the cheapest of them."
    if chosen.label == baseline:
        return f"Nothing that was tried is better than {named(baseline)}: take it as it is."
    if chosen.gain_low <= 0:
        return f"{named(chosen.label)} has the largest expected gain, but whether people would see it is not certain."
    return f"{named(chosen.label)} has the largest expected gain."
