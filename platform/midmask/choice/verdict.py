"""A verdict as data: what `verdict.json` holds and the pages show."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from midmask.errors import unknown

SystemName = tuple[str, str]
"""(system, representation), such as `("retromae", "dense with BM25")`."""

WITH_BM25 = " with BM25"
"""End of the representation of a system whose list is joined with BM25's."""

TrainingKind = Literal["none", "fine-tuning", "middle training"]
"""The most that a system was trained in the contest; a middle training is followed by a fine-tuning."""


@dataclass(frozen=True)
class QueryCounts:
    """How many queries were made and what became of them. source: kind of source -> queries kept."""

    source: Mapping[str, int]
    made: int
    kept: int
    train: int
    dev: int
    test: int


@dataclass(frozen=True)
class SystemEstimate:
    """One system of the contest.

    rank: 1 is the best, by gain. gain, gain_low, gain_high: expected difference from the verdict's baseline on queries
    that people ask, with its interval. made_gain, made_low, made_high: the difference that was measured on the made
    queries, with its interval; NaN in verdicts of versions that did not write it. estimate, low, high: expected measure
    on queries that people ask. Levels differ between collections far more than gains do, so no page shows these three.
    seconds: of computing, all its trainings and the encoding of the collection. bytes_per_passage: of its index.
    model: its folder; "" for BM25. finalist: whether it was measured on the test queries; others were measured on the
    dev queries only. dropped: why it did not become a finalist; "" for a finalist.
    """

    system: str
    representation: str
    rank: int
    estimate: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    seconds: float
    bytes_per_passage: float
    model: str = ""
    finalist: bool = True
    made_gain: float = math.nan
    made_low: float = math.nan
    made_high: float = math.nan
    training: TrainingKind = "fine-tuning"
    dropped: str = ""

    @property
    def name(self) -> SystemName:
        return self.system, self.representation

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.system if self.representation in ("", self.system) else f"{self.system} · {self.representation}"

    @property
    def is_joined(self) -> bool:
        """Whether its list is joined with BM25's."""
        return self.representation.endswith(WITH_BM25)


@dataclass(frozen=True)
class Recommendation:
    """What to take. distinguishable: whether it differs from the baseline beyond the interval; reason: a sentence."""

    system: str
    representation: str
    distinguishable: bool
    reason: str

    @property
    def name(self) -> SystemName:
        return self.system, self.representation


@dataclass(frozen=True)
class Calibration:
    """How well verdicts without labels agreed with judgements, on collections that have some.

    collections: their names. kendall_tau: mean over them, between the two rankings of systems. coverage: share of
    judged values within the intervals, whose level is `level`. source: the command and file the figures come from.
    """

    collections: tuple[str, ...]
    kendall_tau: float
    coverage: float
    level: float = 0.9
    source: str = ""


@dataclass(frozen=True)
class Example:
    """A test query that one of two systems ranks far better. ranks: label -> rank of its passage; None: not found."""

    query: str
    source: str
    title: str
    text: str
    ranks: Mapping[str, int | None]


@dataclass(frozen=True)
class Verdict:
    """The answer to: which middle training, what does it gain, how sure is that, is it worth the hours.

    baseline: label of the system that gains are over. measure: such as nDCG@10. model: folder of the delivered system's
    model; "" if no system has one. collection: BEIR folder of the passages with the made queries. won, lost: queries on
    which the recommended system is better than the baseline, and worse. not_tried: label of each system that was not
    measured at all -> why. limits: sentences on what the verdict does not show. command: makes it again. folder: where
    it was written. enough_seconds: budget that would have compared middle trainings; None where some were compared, or
    none was asked for.
    """

    corpus: str
    passages: int
    queries: QueryCounts
    systems: tuple[SystemEstimate, ...]
    recommendation: Recommendation
    calibration: Calibration
    baseline: str
    measure: str
    model: str
    collection: str
    budget_seconds: float
    spent_seconds: float
    command: str
    won: tuple[Example, ...] = ()
    lost: tuple[Example, ...] = ()
    not_tried: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    folder: str = ""
    enough_seconds: float | None = None

    @property
    def finalists(self) -> tuple[SystemEstimate, ...]:
        """The systems that were measured on the test queries, the best first."""
        return tuple(sorted((one for one in self.systems if one.finalist), key=lambda one: one.rank))

    @property
    def given_up(self) -> tuple[SystemEstimate, ...]:
        """The systems that were measured on the dev queries only, the best first."""
        return tuple(sorted((one for one in self.systems if not one.finalist), key=lambda one: one.rank))

    @property
    def compared_middle_training(self) -> bool:
        """Whether a system with a middle training was measured."""
        return any(one.training == "middle training" for one in self.systems)

    @property
    def recommended(self) -> SystemEstimate:
        """The estimate of the recommended system.

        Raises:
            UserError: if the verdict has none.
        """
        wanted = self.recommendation.name
        for one in self.systems:
            if one.name == wanted:
                return one
        raise unknown("recommended system", " · ".join(wanted), [one.label for one in self.systems])

    @property
    def delivered(self) -> SystemEstimate:
        """The system whose model lies in `model`: the recommended one; where that has none, the best that has one."""
        with_model = [one for one in (self.recommended, *self.finalists, *self.given_up) if one.model]
        return with_model[0] if with_model else self.recommended

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Verdict":
        """The verdict that `as_json` wrote."""
        found: dict[str, Any] = json.loads(text)
        made: dict[str, Any] = {
            "queries": QueryCounts(**found["queries"]),
            "systems": tuple(SystemEstimate(**one) for one in found["systems"]),
            "recommendation": Recommendation(**found["recommendation"]),
            "calibration": Calibration(
                **{**found["calibration"], "collections": tuple(found["calibration"]["collections"])}
            ),
            "won": tuple(Example(**one) for one in found["won"]),
            "lost": tuple(Example(**one) for one in found["lost"]),
            "limits": tuple(found["limits"]),
        }
        return cls(**{**found, **made})
