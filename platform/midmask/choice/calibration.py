"""How values on made queries predict values on people's queries, as collections that have both have shown.

One model for gains of a system and for the measure of the baseline itself:

    value on people's queries = weight · value on made queries + offset of the collection

The weight is assumed for each kind of value (`Kind`), since four collections cannot tell it. `calibration.json` holds
the offset of a new collection for each kind, and how well the gains of each collection are predicted from the records
of all others. A maintainer makes it from the records of revealed verdicts, as CONTRIBUTING.md says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter
from scipy import stats

from midmask.choice.contenders import System
from midmask.choice.verdict import Calibration
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance, interval
from midmask.retrieve.bm25 import BM25

COVERAGE = 0.9
"""Confidence level of all intervals in a verdict."""

FILE = Path(__file__).with_name("calibration.json")


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

KINDS = (LEVEL, TRAINED, WORDS, LEXICAL_GAIN, JOIN)


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

    value: float
    variance: Variance


@dataclass(frozen=True)
class CalibrationFile:
    """What `calibration.json` holds."""

    offsets: Mapping[str, Offset]  # by the names of kinds
    calibration: Calibration

    @classmethod
    def load(cls) -> "CalibrationFile":
        return TypeAdapter(cls).validate_json(FILE.read_text("utf-8"))

    @property
    def by_kind(self) -> dict[Kind, Offset]:
        return {kind: self.offsets[kind.name] for kind in KINDS}


class Prediction(NamedTuple):
    """A part of a value on people's queries: its offset, the made value, and the variance of the latter's mean."""

    kind: Kind
    offset: Offset
    made: float
    sampling: Variance

    @property
    def value(self) -> float:
        return self.kind.weight * self.made + self.offset.value

    @property
    def variances(self) -> tuple[Variance, Variance]:
        weight = self.kind.weight
        return Variance(weight**2 * self.sampling.value if weight else 0.0, self.sampling.freedom), self.offset.variance


def sum_interval(parts: Sequence[Prediction]) -> IntervalEstimate:
    """The sum of predicted values, with the interval of its variances, by Welch and Satterthwaite's t."""
    variances = [variance for part in parts for variance in part.variances]
    return interval(math.fsum(part.value for part in parts), variances, 1 - COVERAGE)


def level_interval(made: float, offset: Offset) -> IntervalEstimate:
    """The measure on queries that people ask, from its value on made queries."""
    return sum_interval([Prediction(LEVEL, offset, made, Variance(0.0, 1.0))])


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau-b of two measurements of the same systems; None for fewer than two, or if all are equal."""
    tau = float(stats.kendalltau(a, b).statistic) if len(a) > 1 else math.nan
    return None if math.isnan(tau) else tau


def regret(estimates: Sequence[float], judged: Sequence[float]) -> float:
    """The regret of choosing by estimate: the best judged value less that of the first with the highest estimate."""
    return float(max(judged) - judged[int(np.argmax(estimates))])
