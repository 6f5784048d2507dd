"""The time that a contest may take: parsed, spent over restarts, and turned into the length of trainings."""

import re
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from midmask.choice.contenders import Size
from midmask.errors import UserError
from midmask.estimate.devices import this_machine

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
