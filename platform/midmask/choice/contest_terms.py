"""What a contest is held under, and what comes out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from midmask.benchmark.design import Benchmark
from midmask.benchmark.results import Result, SystemKey
from midmask.choice.budget import Limits
from midmask.choice.contenders import Contender, Size
from midmask.choice.samples import Sample
from midmask.experiment.survey import Survey

ROUNDS = 3
PHASES = (DOCUMENTS, *ROUND_NAMES, TESTS) = (
    "documents and queries",
    *(f"round {number} of {ROUNDS}" for number in range(1, ROUNDS + 1)),
    "test queries",
)
"""Of a contest's progress."""


@dataclass(frozen=True)
class Conditions:
    """What all rounds share. make: size, splits -> the benchmark of a round. sample: split -> what can be searched in
    place of the whole collection, if that is large. taught: whether there is a cross-encoder to learn from.
    """

    make: Callable[[Size, Sequence[str]], Benchmark]
    seed: int
    limits: Limits
    representations: tuple[str, ...]
    taught: bool
    survey: Survey
    sample: Callable[[str], Sample | None]


@dataclass(frozen=True)
class ContestOutcome:
    """sizes, dev: of the last round in which each key was measured, and its result on the dev queries. measured: all
    that were; finalists: of them, those that came through, the best on dev first. given_up: label of each system that
    is no finalist -> why, whether it was measured on dev or not. tested_on: what the test queries are searched in, if
    not in the whole collection. enough: see `ContestJournal`.
    """

    sizes: Mapping[SystemKey, Size]
    dev: Mapping[SystemKey, Result]
    measured: tuple[Contender, ...]
    finalists: tuple[Contender, ...]
    given_up: Mapping[str, str]
    tested_on: Sample | None
    enough: float | None

    @property
    def not_tried(self) -> dict[str, str]:
        """Label of each system that was not measured at all -> why."""
        measured = {one.label for one in self.measured}
        return {label: why for label, why in self.given_up.items() if label not in measured}
