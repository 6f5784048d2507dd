"""Budget, conditions and journal of a contest; a killed contest resumes from its journal.

The budget is spent over restarts, and turned into the length of trainings.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from midmask.benchmark.design import Benchmark
from midmask.choice.contenders import BATCH, Size, System
from midmask.choice.traces import Sample
from midmask.core.process import ticking
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place

FEWEST_STEPS, MOST_STEPS = 20, 200_000
PASSAGE_EPOCHS, QUERY_EPOCHS = 20, 5
ENOUGH = 4
"""Trained contenders that a first round should compare: fine-tuned only, and three middle trainings."""

SHORTEST = Size(FEWEST_STEPS, FEWEST_STEPS)
UNSEEN = Size(FEWEST_STEPS + 1, FEWEST_STEPS + 1)
"""The size from which prices are extrapolated: trainings of the shortest size may be finished and cost nothing."""


class Clock:
    """A budget in seconds, and how much of it is spent. `spent` counts earlier runs of the same command."""

    def __init__(self, budget: float, spent: float = 0.0) -> None:
        self.budget = budget
        self._began = time.monotonic() - spent

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self.budget - self.spent

    def at(self, share: float) -> float:
        """When this share of the budget will be spent, by `time.monotonic`."""
        return self._began + share * self.budget


@dataclass(frozen=True)
class Limits:
    """Upper bounds on the length of trainings, from the collection's size and a number of epochs."""

    passages: int  # of the collection
    queries: int  # to train on

    def size(self, steps: int) -> Size:
        """The size of a round with so many steps a training, bounded by the epochs over the collection."""
        bounded = min(MOST_STEPS, max(FEWEST_STEPS, steps))
        pretrain = max(FEWEST_STEPS, PASSAGE_EPOCHS * self.passages // BATCH)
        finetune = max(FEWEST_STEPS, QUERY_EPOCHS * self.queries // BATCH)
        return Size(min(bounded, pretrain), min(bounded, finetune))


RoundPrice = Callable[[int, Size], float]
"""Number of the first contenders, length of their trainings -> seconds of a round of these."""


def room(price: RoundPrice, untrained: int, most: int, seconds: float, limits: Limits) -> tuple[int, Size] | None:
    """The most contenders of a round that can be afforded, and the length of their trainings; None if there is no time
    to train one.

    Args:
        untrained: number of contenders at the front that need no training.
        most: number of all contenders.
    """
    for count in range(most, untrained, -1):
        size = affordable(partial(price, count), seconds, limits)
        if size is not None:
            return count, size
    return None


@dataclass(frozen=True)
class RoundPlan:
    """The plan of a round: how many of the waiting contenders are trained, and for how long."""

    count: int
    size: Size
    seconds: float  # that the round may take


def first_round(price: RoundPrice, untrained: int, most: int, left: float, rounds: int, limits: Limits) -> RoundPlan:
    """Plans the first of several rounds of equal time, as `room`. If that trains fewer than `ENOUGH` contenders, one
    round gets all the time, because longer trainings of a few do not show which training helps. If there is no time for
    more than the shortest trainings, as many contenders are compared as those allow; finished trainings cost nothing.

    Args:
        left: seconds of all rounds together.
    """
    enough = untrained + min(ENOUGH, most - untrained)
    fitting = room(price, untrained, most, left / rounds, limits)
    if fitting is not None and fitting[0] >= enough:
        return RoundPlan(*fitting, left / rounds)
    if (fitting := room(price, untrained, most, left, limits)) is not None:
        return RoundPlan(*fitting, left)
    count = count_that_fits(lambda first: price(first, SHORTEST), untrained, most, max(left, 0.0))
    return RoundPlan(count, SHORTEST, left)


def count_that_fits(price: Callable[[int], float], least: int, most: int, seconds: float) -> int:
    """The most contenders whose price fits, by the price of the first so many; at least `least`."""
    return next(count for count in range(most, least - 1, -1) if count == least or price(count) <= seconds)


def affordable(price: Callable[[Size], float], seconds: float, limits: Limits) -> Size | None:
    """The longest trainings whose price fits; None if not even the shortest do.

    Args:
        price: seconds of all trainings of a round, linear in both lengths but for trainings that are there already.
    """
    few = UNSEEN.pretrain
    fixed = price(UNSEEN)
    pretrain = (price(Size(2 * few, few)) - fixed) / few
    finetune = (price(Size(few, 2 * few)) - fixed) / few

    def of(steps: int) -> float:
        size = limits.size(steps)
        return fixed + pretrain * (size.pretrain - few) + finetune * (size.finetune - few)

    if of(FEWEST_STEPS) > seconds:
        return None

    return limits.size(bisect_right(range(MOST_STEPS), seconds, lo=FEWEST_STEPS, key=of) - 1)


ROUNDS = 3
(DOCUMENTS, *ROUND_NAMES, TESTS) = (
    "documents and queries",
    *(f"round {number} of {ROUNDS}" for number in range(1, ROUNDS + 1)),
    "test queries",
)
"""Phases of a contest, as its progress shows them."""


@dataclass(frozen=True)
class Conditions:
    """The conditions that all rounds of a contest share."""

    make: Callable[[Size, Sequence[str]], Benchmark]  # size, splits -> the benchmark of a round
    seed: int
    limits: Limits
    representations: tuple[str, ...]
    survey: Survey
    sample: Callable[[str], Sample | None]  # split -> the sample to search; None: the collection is small


FILE = "contest.json"
TICK_S = 10.0


@dataclass(frozen=True)
class Round:
    """One round of the contest: its contenders and the length of their trainings."""

    size: Size
    contenders: tuple[System, ...]
    until: float  # seconds of the budget after which none of its trainings begins


@dataclass
class ContestState:
    """What was decided and spent in a contest; None until it is decided or measured."""

    identity: str  # fingerprint of everything that the decisions depend on
    spent: float = 0.0
    pace: float | None = None  # `Prices.per_utilisation`
    sampled: bool | None = None  # whether the test queries search a sample
    kept: float | None = None  # seconds reserved for the test queries
    rounds: list[Round] = field(default_factory=list)
    finalists: tuple[System, ...] | None = None
    given_up: dict[str, str] = field(default_factory=dict)  # label -> why


class ContestJournal(ContestState):
    """The decisions of one contest, in a file; another contest in the same folder begins afresh.

    Args:
        folder: of the verdict.
        identity: see `ContestState`.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._place = Place(str(folder / FILE))
        self._writing = threading.Lock()
        try:
            state = TypeAdapter(ContestState).validate_json((folder / FILE).read_bytes())
        except (OSError, ValidationError):  # missing, or torn
            state = ContestState(identity)
        super().__init__(**vars(state if state.identity == identity else ContestState(identity)))

    def give_up(self, contenders: Sequence[System], reason: str) -> None:
        """Notes why contenders are not trained further, or were never trained."""
        # A new mapping, since a thread may be writing the old one.
        self.given_up = {**self.given_up, **{str(entry): reason for entry in contenders}}
        self.write()

    def write(self, spent: float | None = None) -> None:
        """Replaces the file atomically. Safe to call from several threads: the last write has the latest state."""
        with self._writing:
            self.spent = self.spent if spent is None else spent
            self._place.write_json(asdict(self))

    def keep_time(self, clock: Clock, period: float = TICK_S) -> AbstractContextManager[None]:
        """Writes the spent time every `period` seconds while the block runs, so that a kill loses no more than that."""
        return ticking(lambda: self.write(clock.spent), period, "contest-clock")
