"""From measures on made queries to estimates for real ones, and from these to a recommendation."""

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
from midmask.choice.report_text import named
from midmask.choice.verdict import WITH_BM25, Recommendation, SystemEstimate
from midmask.core.arrays import Doubles
from midmask.evaluation.measures import by_query
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval

COVERAGE = 0.9
"""Of all intervals of a verdict."""

ALIKE = 0.01
"""A difference of the measure that nobody would pay for."""


@dataclass(frozen=True)
class MeasuredSystem:
    """A system's values on the queries of one split. model: folder; "" for BM25. dropped: why it is no finalist."""

    key: SystemKey
    result: Result
    seconds: float
    bytes_per_passage: float
    model: str
    finalist: bool
    dropped: str = ""


LEXICAL_PRIOR = Fit(shrink=0.5, between=0.1, freedom=4)
"""Of gains that BM25 has a part in, until two collections have been measured: made queries share their passages' words
far more than people's do, so that half of such a gain is expected, give or take 0.1.
"""

JOIN_PRIOR = Fit(shrink=0.0, bias=-0.04, between=0.06, freedom=4)
"""Of what BM25's list adds to an encoder's: made queries do not tell it. On four collections people's queries gained
0.03 to 0.13, least where made queries said most (docs/results/choose.md). Without them 0.04 is expected, give or take
0.06, since joined lists are rarely worse than both of their parts (Bruch et al. 2023).
"""

TRAINED, WORDS, JOIN = "trained", "words", "with BM25"

PRIORS = {TRAINED: PRIOR, WORDS: LEXICAL_PRIOR, JOIN: JOIN_PRIOR, BM25: LEXICAL_PRIOR}
"""Kind of gain -> what is assumed of it. trained: of an encoder over the same one as it is, both alone or both with
BM25. words: of SPLADE and hybrids over the encoder as it is, and of a trained, joined encoder over BM25. with BM25: of
the encoder as it is, by BM25's list. bm25: of BM25 over the encoder.
"""

OWN = {TRAINED, WORDS}
"""Kinds whose scatter is another for each system; that of the others is shared by all systems that have them."""


@dataclass(frozen=True)
class Counterparts:
    """What gains are counted from: split -> result. baseline: the verdict's. joined: the encoder as it is with BM25,
    that the trained ones are held against which are joined alike; none where it was not measured.

    Nothing but training sets a system apart from its reference, so that the made queries' favour for words, and the
    size of the collection that a split was searched in, are the same for both.
    """

    baseline: Mapping[str, Result]
    joined: Mapping[str, Result] | None = None

    def of(self, key: SystemKey) -> Mapping[str, Result]:
        """The system's own reference."""
        if self.joined is None or not is_joined(key) or key == self.joined["test"].key:
            return self.baseline
        return self.joined

    def path(self, own: Result) -> list[tuple[Result, Result]]:
        """Pairs whose gains add up to the gain over the baseline: the system over its reference, that over its own."""
        reference = self.of(own.key)
        found = [] if own.key == self.baseline["test"].key else [(own, reference[own.split])]
        return found if reference is self.baseline else [*found, *self.path(reference["test"])]


def kind_of(system: str, representation: str, *, over_joined: bool) -> str:
    """The kind of a gain, of `PRIORS`, by the system's names in a verdict and by what it is a gain over."""
    if system == BM25:
        return BM25
    if representation.removesuffix(WITH_BM25) != "dense":
        return WORDS
    if over_joined or not representation.endswith(WITH_BM25):
        return TRAINED
    return JOIN if system == AS_IS else WORDS


def record_kind(record: GainRecord) -> str:
    """The kind of the gain that a record is of."""
    system, representation = record.system.split(" · ")
    return kind_of(system, representation, over_joined=bool(record.over))


def held_out(records: Sequence[GainRecord]) -> list[HeldOutCollection]:
    """How well each collection would have been predicted from the others."""
    return leave_one_out(records, COVERAGE, record_kind, PRIORS)


@dataclass(frozen=True)
class Experience:
    """What collections with judgements have taught. gains: kind -> of its gains. levels: of the baseline's own
    measure.
    """

    gains: Mapping[str, Fit]
    levels: Sequence[LevelRecord]

    @classmethod
    def of(cls, records: Sequence[GainRecord], levels: Sequence[LevelRecord]) -> "Experience":
        """Kinds of gains are fitted apart, since made queries favour words."""
        return cls(fit_kinds(records, record_kind, PRIORS), levels)

    def gain(self, own: Result, counterparts: Counterparts) -> IntervalEstimate:
        """The gain of a system over the baseline on queries that people ask: the sum along its path."""
        parts = []
        for one, over in counterparts.path(own):
            differences = paired(one, over)
            parts.append((self.gains[self._kind(one, over)], float(differences.mean()), Variance.of_mean(differences)))
        return sum_interval(parts, COVERAGE)

    def is_behind(self, one: "MeasuredSystem", best: "MeasuredSystem", counterparts: Counterparts) -> bool:
        """Whether the interval of a system's difference from the best one lies below 0. What scatters around the gains
        of all systems of a kind alike does not set two of them apart.
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
    """Differences on the queries that both have, of `queries` if these are given."""
    values, others = by_query(own.per_query, MEASURE), by_query(other.per_query, MEASURE)
    shared = [query for query in values if query in others and (queries is None or query in queries)]
    return np.array([values[query] - others[query] for query in shared], dtype=np.float64)


def estimates(
    measured: Sequence[MeasuredSystem], counterparts: Counterparts, known: Experience
) -> tuple[SystemEstimate, ...]:
    """All systems by rank: finalists first, each group by its estimated gain."""
    found = [_estimate(one, counterparts, known) for one in measured]
    found.sort(key=lambda one: (not one.finalist, -one.gain, one.seconds, one.label))
    return tuple(replace(one, rank=rank) for rank, one in enumerate(found, start=1))


def _estimate(one: MeasuredSystem, counterparts: Counterparts, known: Experience) -> SystemEstimate:
    system, representation = name_of(one.key)
    found = known.gain(one.result, counterparts)
    gain, low, high = found.value, found.low, found.high
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
    by_name = {name_of(one.key): one for one in measured}
    finalists = [one for one in systems if one.finalist]
    best = finalists[0]
    near = [one for one in finalists if best.gain - one.gain <= ALIKE]
    first = by_name[best.name]
    alike = [one for one in near if one is best or not known.is_behind(by_name[one.name], first, counterparts)]
    chosen = min(alike, key=lambda one: (one.seconds, one.bytes_per_passage, one.rank))
    distinguishable = chosen.gain_low > 0
    over = next(one.label for one in systems if one.name == name_of(counterparts.baseline["test"].key))
    return Recommendation(*chosen.name, distinguishable, _reason(chosen, best, alike, over))


def _reason(chosen: SystemEstimate, best: SystemEstimate, alike: Sequence[SystemEstimate], baseline: str) -> str:
    """Why this one, without figures, which the headline has."""
    if len(alike) > 1 and chosen is not best:
        return f"{len(alike)} systems may be the best one; {named(chosen.label)} is the cheapest of them."
    if chosen.label == baseline:
        return f"Nothing that was tried is better than {named(baseline)}: take it as it is."
    if chosen.gain_low <= 0:
        return f"{named(chosen.label)} has the largest expected gain, but whether people would see it is not certain."
    return f"{named(chosen.label)} has the largest expected gain."
