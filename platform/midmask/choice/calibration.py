"""How well values on made queries predict values on people's queries, from records of collections that have both.

One model for gains of a system (`calibration.jsonl`) and for the measure of the baseline itself (`levels.jsonl`):

    value on people's queries = weight · value on made queries + offset of the collection

The weight is assumed for each kind of value (`Kind`), since four collections cannot tell it. Of a new collection the
offset is the mean over those that were measured, each the mean of its records, give or take t · s · sqrt(1 + 1/n);
where it is known to be 0, as for gains of training, whose baseline has gain 0 on both sides, give or take t · s. s²
pools what was assumed with what n collections show, by degrees of freedom: few collections count beside the assumption,
many outweigh it. `leave_one_out` tells how well each collection's gains are predicted from the records of all others.

A maintainer collects the records of revealed verdicts, and sees that table, as CONTRIBUTING.md says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from midmask.benchmark.design import BM25
from midmask.choice.contenders import System
from midmask.choice.verdict import Calibration
from midmask.core.config import as_user_error
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval

COVERAGE = 0.9
"""Confidence level of all intervals in a verdict."""

GAINS_FILE, LEVELS_FILE = (Path(__file__).with_name(name) for name in ("calibration.jsonl", "levels.jsonl"))


@dataclass(frozen=True, kw_only=True)
class LevelRecord:
    """The baseline's measure on a collection (nDCG@10 counts from 0 to 1)."""

    collection: str
    source: str  # kind of the made queries, such as titles, or `all`
    made: float  # on made queries
    judged: float  # on people's queries


@dataclass(frozen=True, kw_only=True)
class GainRecord(LevelRecord):
    """A system's gain over another one on a collection: means of paired differences."""

    system: System
    made_error: float  # standard error of `made`
    judged_error: float  # standard error of `judged`
    over: System | None = None  # the other system, whose own gain is another record; None: the collection's baseline
    seed: int = 0  # of the verdict; all seeds of one collection are held out together

    @property
    def kind(self) -> "Kind":
        return kind_of(self.system, over_joined=self.over is not None)


def load_records(path: Path = GAINS_FILE) -> list[GainRecord]:
    """The gains of a file; a UserError for a line that is no record."""
    return _load(TypeAdapter(GainRecord), path)


def load_levels(path: Path = LEVELS_FILE) -> list[LevelRecord]:
    """The levels of a file; a UserError for a line that is no record."""
    return _load(TypeAdapter(LevelRecord), path)


def _load(form: TypeAdapter[Any], path: Path) -> list[Any]:
    records = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        try:
            records.append(form.validate_json(line))
        except ValidationError as error:
            raise UserError(f"{path}, line {number}: {as_user_error(error, '')}") from None
    return records


class Kind(NamedTuple):
    """What is assumed of a kind of value before any collection is measured."""

    name: str
    weight: float  # part of the made value that is expected where people ask
    spread: float  # standard deviation of a collection's offset
    offset: float = 0.0
    is_learned: bool = False  # whether the offset is the mean of the collections that were measured
    is_shared: bool = False  # whether the offset of a collection is the same for all systems


LEVEL = Kind("level", weight=1.0, spread=0.15, is_learned=True)

TRAINED = Kind("trained", weight=0.5, spread=0.02)
"""A trained encoder over the untrained one, both alone or both joined with BM25. Such gains are 0.01 to 0.05."""

WORDS = Kind("words", weight=0.5, spread=0.1)
"""SPLADE or a hybrid over the untrained encoder, or a trained encoder with BM25 over BM25."""

LEXICAL_GAIN = Kind("lexical", weight=0.0, spread=0.1, is_shared=True)
"""BM25 over the untrained encoder. Made queries share far more words with their passages than people's queries do, so
they do not tell it.
"""

JOIN = Kind("join", weight=0.0, spread=0.06, offset=0.04, is_learned=True, is_shared=True)
"""The untrained encoder joined with BM25 over itself. Made queries do not tell it either (docs/results/choose.md);
joined lists are rarely worse than both of their parts (Bruch et al. 2023).
"""

GAINS = (TRAINED, WORDS, LEXICAL_GAIN, JOIN)
ASSUMED_FREEDOM = 4
"""Degrees of freedom of an assumed spread."""


def kind_of(system: System, *, over_joined: bool) -> Kind:
    """The kind of a system's gain over the baseline, or over the untrained encoder that is joined with BM25."""
    if system.recipe == BM25:
        return LEXICAL_GAIN
    if system.representation != "dense":
        return WORDS
    if over_joined or not system.joined:
        return TRAINED
    return JOIN if system.training == "none" else WORDS


@dataclass(frozen=True)
class Offset:
    """The offset of a new collection, for one kind of value."""

    kind: Kind
    value: float
    variance: Variance

    @classmethod
    def of(cls, kind: Kind, records: Sequence[LevelRecord]) -> "Offset":
        """From records of this kind; without any, what is assumed."""
        names = dict.fromkeys(row.collection for row in records)
        offsets = [
            float(np.mean([row.judged - kind.weight * row.made for row in records if row.collection == name]))
            for name in names
        ]
        assumed, count = Variance(kind.spread**2, ASSUMED_FREEDOM), len(offsets)
        if not offsets:
            return cls(kind, kind.offset, assumed)
        if not kind.is_learned:
            seen = Variance(float(np.mean(np.square(np.array(offsets) - kind.offset))), count)
            return cls(kind, kind.offset, assumed.pooled(seen))
        pooled = assumed.pooled(Variance(float(np.var(offsets, ddof=1)), count - 1)) if count > 1 else assumed
        return cls(kind, float(np.mean(offsets)), Variance(pooled.value * (1 + 1 / count), pooled.freedom))


class Prediction(NamedTuple):
    """A part of a value on people's queries: its offset, the made value, and the variance of the latter's mean."""

    offset: Offset
    made: float
    sampling: Variance

    @property
    def value(self) -> float:
        return self.offset.kind.weight * self.made + self.offset.value

    @property
    def variances(self) -> tuple[Variance, Variance]:
        weight = self.offset.kind.weight
        return Variance(weight**2 * self.sampling.value if weight else 0.0, self.sampling.freedom), self.offset.variance


def sum_interval(parts: Sequence[Prediction]) -> IntervalEstimate:
    """The sum of predicted values, with the interval of its variances, by Welch and Satterthwaite's t."""
    variances = [variance for part in parts for variance in part.variances]
    return interval(math.fsum(part.value for part in parts), variances, 1 - COVERAGE)


EXACT = Variance(0.0, 1.0)


def level_interval(made: float, records: Sequence[LevelRecord]) -> IntervalEstimate:
    """The measure on queries that people ask, from its value on made queries."""
    return sum_interval([Prediction(Offset.of(LEVEL, records), made, EXACT)])


def gain_offsets(records: Sequence[GainRecord]) -> dict[Kind, Offset]:
    """The offset of each kind of gain."""
    return {kind: Offset.of(kind, [record for record in records if record.kind == kind]) for kind in GAINS}


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau-b of two measurements of the same systems; None for fewer than two, or if all are equal."""
    tau = float(stats.kendalltau(a, b).statistic) if len(a) > 1 else math.nan
    return None if math.isnan(tau) else tau


def regret(estimates: Sequence[float], judged: Sequence[float]) -> float:
    """The regret of choosing by estimate: the best judged value less that of the first with the highest estimate."""
    return float(max(judged) - judged[int(np.argmax(estimates))])


@dataclass(frozen=True)
class HeldOutCollection:
    """How well the records of all other collections predict this one, for one source and seed of made queries."""

    collection: str
    source: str
    seed: int
    systems: int  # number of gains, without the baseline
    kendall_tau: float | None  # between expected and judged gains, with the baseline; None where all are equal
    regret: float  # in units of the measure
    covered: int  # number of judged gains within their intervals


def leave_one_out(records: Sequence[GainRecord]) -> list[HeldOutCollection]:
    """Compares each collection's judged gains with those expected from the records of all other collections.

    Sources and seeds of one collection are held out together and reported apart, in the order of the records.
    """
    results = []
    for collection in dict.fromkeys(record.collection for record in records):
        offsets = gain_offsets([record for record in records if record.collection != collection])
        held = [record for record in records if record.collection == collection]
        for verdict in dict.fromkeys((row.source, row.seed) for row in held):
            results.append(_compare(offsets, [row for row in held if (row.source, row.seed) == verdict]))
    return results


def _compare(offsets: Mapping[Kind, Offset], records: Sequence[GainRecord]) -> HeldOutCollection:
    by_system = {record.system: record for record in records}
    expected, judged, covered = [0.0], [0.0], 0
    for record in records:
        parts = [record, *([by_system[record.over]] if record.over else [])]
        predicted = [
            Prediction(offsets[part.kind], part.made, Variance(part.made_error**2, math.inf)) for part in parts
        ]
        estimate = sum_interval(predicted)
        expected.append(estimate.value)
        judged.append(sum(part.judged for part in parts))
        covered += estimate.low <= judged[-1] <= estimate.high
    first, tau, lost = records[0], kendall_tau(expected, judged), regret(expected, judged)
    return HeldOutCollection(first.collection, first.source, first.seed, len(records), tau, lost, covered)


def calibration(results: Sequence[HeldOutCollection], source: str = "") -> Calibration:
    """Summarises held-out results: the fraction of all gains within their intervals, and the mean Kendall's tau.

    Args:
        source: command and file that the records come from.
    """
    taus = [one.kendall_tau for one in results if one.kendall_tau is not None]
    if not taus:
        return Calibration((), 0.0, 0.0)
    share = sum(one.covered for one in results) / sum(one.systems for one in results)
    names = tuple(dict.fromkeys(one.collection for one in results))
    return Calibration(names, math.fsum(taus) / len(taus), share, COVERAGE, source)
