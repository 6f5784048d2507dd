"""What a contest is held under: its budget of time, its conditions, and the journal that a killed one goes on from.

The budget is parsed, spent over restarts, and turned into the length of trainings. The journal keeps what was decided
and spent in the contest's folder, so that the same decisions hold after a restart.
"""

import json
import math
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from midmask.benchmark.design import Benchmark
from midmask.benchmark.results import Result, SystemKey
from midmask.choice.contenders import Contender, Size
from midmask.choice.traces import Sample
from midmask.core.process import ticking
from midmask.errors import UserError
from midmask.estimate.devices import this_machine
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
FORMS = "30m, 8h, 1h30m, or 4gpuh for hours of all GPUs together"
LEAST = 60.0
"""Seconds below which nothing can be trained."""

FEWEST_STEPS, MOST_STEPS = 20, 200_000
ENOUGH = 4
"""Trained contenders that a first round should compare: fine-tuned only, and three middle trainings."""

SHORTEST = Size(FEWEST_STEPS, FEWEST_STEPS)
TELLING_STEPS = 100
"""Of each training in the budget that a verdict names as enough, where its own trained too little."""

UNSEEN = Size(FEWEST_STEPS + 1, FEWEST_STEPS + 1)
"""A size that is asked for its price: trainings of the shortest may be there already, and would cost nothing."""


def budget_seconds(text: str, gpus: int | None = None) -> float:
    """The seconds that a budget allows.

    Args:
        gpus: that share the work; none: this machine's.

    Raises:
        UserError: for a text of another form, hours of GPUs where there is none, or less than a minute.
    """
    gpus = _own_gpus() if gpus is None else gpus
    hours = re.fullmatch(r"(\d+(?:\.\d+)?)gpuh", text)
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if hours and not gpus:
        raise UserError(f"--budget {text}: there is no GPU here; give the time by the clock, such as 30m")
    if hours:
        seconds = float(hours[1]) * 3600 / gpus
    elif parts and "".join(number + unit for number, unit in parts) == text:
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    else:
        raise UserError(f"--budget {text}: write {FORMS}")
    if seconds < LEAST:
        raise UserError(f"--budget {text}: nothing can be trained in less than a minute; write {FORMS}")
    return seconds


def _own_gpus() -> int:
    machine = this_machine()
    return machine.count if machine.device.kind == "cuda" else 0


class Clock:
    """A budget, and what of it is spent.

    Args:
        budget: in seconds. spent: by earlier runs of the same command.
    """

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
    """Beyond which trainings repeat themselves. passages: of the collection. queries: that there are to train on."""

    passages: int
    queries: int
    batch: int = 32
    passage_epochs: int = 20
    query_epochs: int = 5

    def size(self, steps: int) -> Size:
        """Trainings of so many steps each, as far as the collection goes."""
        bounded = min(MOST_STEPS, max(FEWEST_STEPS, steps))
        pretrain = max(FEWEST_STEPS, self.passage_epochs * self.passages // self.batch)
        finetune = max(FEWEST_STEPS, self.query_epochs * self.queries // self.batch)
        return Size(min(bounded, pretrain), min(bounded, finetune))


RoundPrice = Callable[[int, Size], float]
"""Number of the first contenders, length of their trainings -> seconds of a round of these."""


def room(price: RoundPrice, untrained: int, most: int, seconds: float, limits: Limits) -> tuple[int, Size] | None:
    """The most contenders of a round that can be afforded, and the length of their trainings; None if there is no time
    to train one.

    Args:
        price: seconds of a round with the first so many contenders, which `affordable` is asked about.
        untrained: contenders at the front that cost no training. most: all that wait.
    """
    for count in range(most, untrained, -1):
        size = affordable(partial(price, count), seconds, limits)
        if size is not None:
            return count, size
    return None


@dataclass(frozen=True)
class RoundPlan:
    """Of the first so many contenders that wait. seconds: that the round may take."""

    count: int
    size: Size
    seconds: float


def first_round(price: RoundPrice, untrained: int, most: int, left: float, rounds: int, limits: Limits) -> RoundPlan:
    """As `room`, in one of so many rounds of equal time. If that is too little to train `ENOUGH` contenders, one round
    gets all the time: a few that are trained longer do not say which training helps. If there is no time to train even
    one for longer than the shortest, as many are compared as can be trained for that long; those that are trained
    already cost nothing.

    Args:
        left: seconds of all rounds together.
    """
    wanted = untrained + min(ENOUGH, most - untrained)
    found = room(price, untrained, most, left / rounds, limits)
    if found is not None and found[0] >= wanted:
        return RoundPlan(*found, left / rounds)
    if (found := room(price, untrained, most, left, limits)) is not None:
        return RoundPlan(*found, left)
    count = count_that_fits(lambda wanted: price(wanted, SHORTEST), untrained, most, max(left, 0.0))
    return RoundPlan(count, SHORTEST, left)


def count_that_fits(price: Callable[[int], float], least: int, most: int, seconds: float) -> int:
    """The most contenders whose price fits, at least `least`.

    Args:
        price: seconds of the first so many.
    """
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


FILE = "contest.json"
TICK_S = 10.0


@dataclass(frozen=True)
class Round:
    """Who is trained and for how long. until: seconds of the budget after which no training of it begins."""

    size: Size
    contenders: tuple[Contender, ...]
    until: float


class ContestJournal:
    """The decisions of one contest; another contest in the same folder begins afresh.

    pace: as `Prices` has learned it; sampled: whether a sample is searched for the test queries; kept: seconds that are
    kept for them; finalists: the systems that are searched with; None: not yet. enough: seconds of a budget that would
    compare middle trainings; None: none takes part.

    Args:
        folder: of the verdict. identity: fingerprint of all that the decisions depend on.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._file = folder / FILE
        self._identity = identity
        self._writing = threading.Lock()
        found = self._read()
        self.spent = float(found.get("spent", 0.0))
        self.pace: float | None = found.get("pace")
        self.sampled: bool | None = found.get("sampled")
        self.kept: float | None = found.get("kept")
        self.enough: float | None = found.get("enough")
        finalists = found.get("finalists")
        self.finalists = None if finalists is None else _contenders(finalists)
        self.rounds = [_round(one) for one in found.get("rounds", ())]
        self.given_up: dict[str, str] = dict(found.get("given_up", {}))

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return found if found.get("identity") == self._identity else {}

    def decide(self, decided: Round) -> None:
        self.rounds.append(decided)
        self.write()

    def choose_finalists(self, finalists: Sequence[Contender]) -> None:
        self.finalists = tuple(finalists)
        self.write()

    def give_up(self, contenders: Sequence[Contender], reason: str) -> None:
        """These go no further, or were never tried."""
        self.given_up = {**self.given_up, **{one.label: reason for one in contenders}}  # anew: a thread may write it
        self.write()

    def write(self, spent: float | None = None) -> None:
        """Replaces the file, whole or not at all; what is written last was known last, whichever thread writes it."""
        with self._writing:
            self.spent = self.spent if spent is None else spent
            rounds = [asdict(one) for one in self.rounds]
            known = {"identity": self._identity, "spent": self.spent, "pace": self.pace}
            known |= {"sampled": self.sampled, "kept": self.kept, "enough": self.enough}
            finalists = None if self.finalists is None else [asdict(one) for one in self.finalists]
            content = {**known, "rounds": rounds, "finalists": finalists, "given_up": self.given_up}
            Place(str(self._file)).write_json(content)

    def keep_time(self, clock: Clock, every: float = TICK_S) -> AbstractContextManager[None]:
        """Writes what is spent again and again while the block runs, so that a kill hides no more than a tick.

        Args:
            every: seconds between two writes.
        """
        return ticking(lambda: self.write(clock.spent), every, "contest-clock")


def _round(found: dict[str, Any]) -> Round:
    return Round(Size(**found["size"]), _contenders(found["contenders"]), float(found.get("until", math.inf)))


def _contenders(found: Sequence[Mapping[str, str]]) -> tuple[Contender, ...]:
    return tuple(Contender(**one) for one in found)
