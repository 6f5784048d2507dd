"""A verdict as data: what `verdict.json` holds and the pages show."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import TypeAdapter

from midmask.errors import unknown

SystemName = tuple[str, str]
"""(system, representation), such as `("retromae", "dense with BM25")`."""

TrainingKind = Literal["none", "fine-tuning", "middle training"]
"""The most that a system was trained in the contest; a middle training is followed by a fine-tuning."""


def label(system: str, representation: str) -> str:
    """A system's name in tables and sentences."""
    return system if representation in ("", system) else f"{system} · {representation}"


@dataclass(frozen=True)
class QueryCounts:
    """How many queries were made, and how many were kept for each split."""

    source: Mapping[str, int]  # kind of source -> queries kept
    made: int
    kept: int
    train: int
    dev: int
    test: int


@dataclass(frozen=True)
class SystemEstimate:
    """One system of the contest, with its estimated gain and its costs."""

    system: str
    representation: str
    rank: int  # 1 is the best, by gain
    # Expected measure on queries that people ask, with its interval. No page shows it, because levels differ between
    # collections far more than gains do.
    estimate: float
    low: float
    high: float
    # Expected difference from the verdict's baseline on queries that people ask, with its interval.
    gain: float
    gain_low: float
    gain_high: float
    seconds: float  # computing time of all its trainings and of encoding the collection
    bytes_per_passage: float  # of its index
    joined: bool = field(kw_only=True)  # whether its list is joined with BM25's
    model: str = ""  # folder; "" for BM25
    finalist: bool = True  # whether it was measured on the test queries; others: on the dev queries only
    # Difference measured on the made queries, with its interval; NaN in files of versions that did not write it.
    made_gain: float = math.nan
    made_low: float = math.nan
    made_high: float = math.nan
    training: TrainingKind = "fine-tuning"

    @property
    def name(self) -> SystemName:
        return self.system, self.representation

    @property
    def label(self) -> str:
        """The system's name in tables."""
        return label(self.system, self.representation)


@dataclass(frozen=True)
class Recommendation:
    """The recommended system, and why it is recommended."""

    system: str
    representation: str
    distinguishable: bool  # whether the interval of its gain over the baseline lies above 0
    reason: str  # a sentence

    @property
    def name(self) -> SystemName:
        return self.system, self.representation


@dataclass(frozen=True)
class Calibration:
    """How well verdicts without labels agreed with judgements, on collections that have judgements."""

    collections: tuple[str, ...]  # names
    kendall_tau: float  # between the two rankings of systems; mean over the collections
    coverage: float  # fraction of judged values within their intervals
    level: float = 0.9  # confidence level of the intervals
    source: str = ""  # the command and file that the figures come from


@dataclass(frozen=True)
class Verdict:
    """Which middle training to choose, what it gains, how certain that is, and what it costs."""

    corpus: str
    passages: int
    queries: QueryCounts
    systems: tuple[SystemEstimate, ...]
    recommendation: Recommendation
    calibration: Calibration
    baseline: str  # label of the system that gains are over
    measure: str  # such as nDCG@10
    model: str  # folder of the delivered system's model; "" if no system has one
    collection: str  # BEIR folder of the passages with the made queries
    budget_seconds: float
    spent_seconds: float
    command: str  # makes the verdict again
    not_tried: Mapping[str, str] = field(default_factory=dict)  # label of each system that was not measured -> why
    limits: tuple[str, ...] = ()  # sentences on what the verdict does not show
    folder: str = ""  # where it was written

    @property
    def finalists(self) -> tuple[SystemEstimate, ...]:
        """The systems that were measured on the test queries, the best first."""
        return tuple(sorted((system for system in self.systems if system.finalist), key=lambda system: system.rank))

    @property
    def given_up(self) -> tuple[SystemEstimate, ...]:
        """The systems that were measured on the dev queries only, the best first."""
        return tuple(sorted((system for system in self.systems if not system.finalist), key=lambda system: system.rank))

    @property
    def recommended(self) -> SystemEstimate:
        """The estimate of the recommended system.

        Raises:
            UserError: if the verdict has none.
        """
        name = self.recommendation.name
        for system in self.systems:
            if system.name == name:
                return system
        raise unknown("recommended system", label(*name), [system.label for system in self.systems])

    @property
    def delivered(self) -> SystemEstimate:
        """The system whose model lies in `model`: the recommended one; where that has none, the best that has one."""
        with_model = [system for system in (self.recommended, *self.finalists, *self.given_up) if system.model]
        return with_model[0] if with_model else self.recommended

    def as_json(self) -> str:
        """The text of `verdict.json`, with a question mark for each character that no file can hold."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"
        return text.encode("utf-8", "replace").decode()

    @classmethod
    def from_json(cls, text: str) -> "Verdict":
        """The verdict that `as_json` wrote.

        Raises:
            pydantic.ValidationError: for another text.
        """
        return TypeAdapter(cls).validate_json(text)
