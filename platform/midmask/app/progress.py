"""How far a job is (phase, steps, time left, best result so far), and how standard error shows it.

There is one `JobProgress` for each job: observers report to it from the driver's threads, and a display reads it from
another. On a terminal the display is a bar, elsewhere plain lines, at most one a minute; of a job with a budget of time
one every minute of its first half hour. A line is also shown when a phase begins. Lines are log records of this module,
which the console always shows; on a terminal other lines go above the bar.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from midmask.core.process import ticking
from midmask.core.words import clock
from midmask.experiment.graph import Step
from midmask.experiment.kinds import KINDS
from midmask.experiment.time_left import TimeLeft, TimeRange

if TYPE_CHECKING:
    from rich.table import Table


Expect = Callable[[Sequence[Step]], Mapping[str, float]]
"""Steps -> fingerprint -> the share of the time by the clock that each is expected to take, in seconds."""

FIRST_MINUTE = 60.0
"""Seconds before a time is told: by then something has been measured in most jobs."""

LONG_S = 20.0
"""Seconds before steps are estimated, which takes some seconds of a processor: a short job is not worth them."""

LINE_S = 10.0
"""Seconds between two lines of a training."""


class StepProgress:
    """Lines for one running step; silent in between."""

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._name = name
        self._show = show
        self._first: tuple[float, int] | None = None
        self._shown = 0.0

    def update(self, at: int, of: int, loss: float | None) -> None:
        """`at` of `of` optimiser steps are done."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, at)
        began, start = self._first
        if now - self._shown < LINE_S and at < of:
            return
        self._shown = now
        rate = (at - start) / (now - began) if now > began else 0.0
        left = f" · {rate:.1f} steps/s · {clock((of - at) / rate)} left" if rate > 0 else ""
        value = f" · loss {loss:.4f}" if loss is not None else ""
        self._show(f"{self._name}: step {at} of {of}{left}{value}")


@dataclass(frozen=True)
class JobState:
    """The progress of a job at one moment."""

    number: int  # of the phase, from 1
    phases: int
    phase: str
    done: int  # finished steps of all phases planned so far
    steps: int  # number of steps of all phases planned so far
    elapsed: float
    left: TimeRange | None  # None in the first minute, and before any step was measured
    at_most: float | None  # seconds after which a job with a time budget ends by itself
    best: str  # the best result so far; "" before there is one


class JobProgress:
    """Collects what the observers of a job report.

    Args:
        phases: in order; `plan` adds those that are not among them.
        expect: estimates steps; none: no time is told.
        clock: seconds that go forward; tests give another one.
    """

    def __init__(
        self, phases: Sequence[str] = (), expect: Expect | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.budget_left: Callable[[], float] | None = None
        self._expect, self._clock = expect, clock
        self._phases: dict[str, dict[str, None]] = {name: {} for name in phases}
        self._steps: dict[str, Step] = {}
        self._left = TimeLeft()
        self._lock = threading.Lock()
        self._estimated, self._known = True, False
        self._began = clock()
        self.phase = next(iter(self._phases), "")
        self._done: set[str] = set()
        self._best = ""

    def plan(self, phases: Mapping[str, Iterable[Step]]) -> None:
        """Sets the steps that are left in these phases. A step that several phases need belongs to the first."""
        with self._lock:
            for phase, steps in phases.items():
                self._forget(self._phases.setdefault(phase, {}))
                for step in steps:
                    self._add(phase, step)
            self.phase = self.phase or next(iter(self._phases), "")
            self._estimated = self._known = False

    def enter(self, phase: str) -> None:
        """A phase begins. Those before it are over, also if not all of their steps were needed, as of pruned trials."""
        with self._lock:
            for name, keys in self._phases.items():
                if name == phase:
                    break
                self._forget(keys)
            self.phase = phase

    def reach(self, phase: str) -> None:
        """A phase begins, while steps of those before it may be left."""
        self.phase = phase

    def begin(self, key: str, kind: str, lanes: int = 1) -> None:
        """A step starts, beside lanes - 1 others. One that was not planned stands for one of its kind and phase."""
        with self._lock:
            keys = self._phases.get(self.phase, {})
            stand_in = self._left.begin(key, kind, self._clock(), lanes, keys)
            if stand_in is not None:
                self._steps[key] = self._steps.pop(stand_in)
                del keys[stand_in]
                keys[key] = None

    def advance(self, key: str, share: float) -> None:
        """This share of a step is done, from 0 to 1."""
        with self._lock:
            self._left.advance(key, share, self._clock())

    def end(self, key: str, kind: str) -> None:
        """A step is done."""
        with self._lock:
            self._left.end(key, self._clock())
            self._done.add(key)
            self._estimated &= not KINDS[kind].tells_volume

    def drop(self, keys: Iterable[str]) -> None:
        """These steps will not be done."""
        with self._lock:
            self._forget(keys)

    def best(self, text: str) -> None:
        """The best result so far."""
        self._best = text

    def elapsed(self) -> float:
        """Seconds since the job began."""
        return self._clock() - self._began

    def estimate(self) -> None:
        """Estimates the steps that are left, which takes seconds, where that is due: once it is known how much there is
        to read, at the latest after the first minute.
        """
        with self._lock:
            left = {key: self._steps[key] for key in self._open()}
        reads = any(step.kind.tells_volume for step in left.values())
        due = self.elapsed() >= (FIRST_MINUTE if reads else LONG_S)
        if self._estimated or not due or self._expect is None or self.budget_left is not None:
            return
        self._estimated = True
        try:
            expected = self._expect(list(left.values()))
        except Exception as error:  # a job does not fail because its end is unknown
            seconds_log.info("the time that is left is not known: %s", error, exc_info=True)
            self._expect = None
            return
        with self._lock:
            self._left.expect({key: expected.get(step.fingerprint, 0.0) for key, step in left.items()})
            self._known = self._estimated

    @property
    def waits(self) -> bool:
        """Whether the time that is left is not known yet, but soon will be."""
        with self._lock:
            return self._expect is not None and self.budget_left is None and not self._is_told()

    def state(self) -> JobState:
        """The progress of the job now."""
        shows_time = self.elapsed() >= FIRST_MINUTE and self._expect is not None and self.budget_left is None
        with self._lock:
            shows_time &= self._is_told()
            names = list(self._phases)
            return JobState(
                number=names.index(self.phase) + 1 if self.phase in names else 0,
                phases=len(names),
                phase=self.phase,
                done=len(self._done),
                steps=len(self._done) + len(self._open()),
                elapsed=self.elapsed(),
                left=self._left.left(self._clock()) if shows_time else None,
                at_most=self.budget_left() if self.budget_left else None,
                best=self._best,
            )

    def _is_told(self) -> bool:
        """Whether the planned steps are estimated and enough of them measured."""
        return self._known and self._left.is_measured

    def _open(self) -> list[str]:
        """Steps of all phases that have not ended."""
        return [key for keys in self._phases.values() for key in keys if key not in self._done and key in self._steps]

    def _add(self, phase: str, step: Step) -> None:
        if not any(step.fingerprint in keys for keys in self._phases.values()):
            self._phases[phase][step.fingerprint] = None
            self._steps[step.fingerprint] = step
            self._left.add(step.fingerprint, step.name)

    def _forget(self, keys: Iterable[str]) -> None:
        lost = [key for key in keys if key not in self._done]
        self._left.drop(lost)
        for key in lost:
            self._steps.pop(key, None)
            for phase_keys in self._phases.values():
                phase_keys.pop(key, None)


log = logging.getLogger(__name__)
seconds_log = logging.getLogger(f"{__name__}.seconds")
"""Logger of lines that only the log file gets."""

MINUTE = 60.0
SLOWER = 3
"""A line also waits for this part of the job's time so far (1 in 3): 8 lines in 13 minutes, and some 20 in 2 hours."""
SLOWER_WITH_BUDGET = 30
"""The same of a job with a budget of time, which people watch run out."""
LONGEST_WAIT_S = 600.0
LONGEST_SILENCE_S = 180.0
"""A line without the time that is left waits so long for it."""
LOOK_EVERY_S = 1.0
BAR_WIDTH = 30


@contextmanager
def displayed(progress: JobProgress, tell: Callable[[str], None]) -> Iterator[None]:
    """Shows the job's progress until the block ends.

    Args:
        tell: gets every line too, also where a terminal shows a bar in place of lines.
    """
    # Estimates have a thread of their own: they take seconds, in which a line may be due.
    with ticking(progress.estimate, LOOK_EVERY_S, "estimate"):
        if sys.stderr.isatty():
            with show_bar(progress), show_lines(progress, tell):
                yield
        else:
            with show_lines(progress, tell, partial(log.info, "%s")):
                yield


class LineSchedule:
    """Decides when a line is due.

    Args:
        listeners: get the text of each line.
    """

    def __init__(self, progress: JobProgress, listeners: Sequence[Callable[[str], None]]) -> None:
        self._progress, self._listeners = progress, listeners
        self._due, self._phase = MINUTE, ""

    def look(self) -> None:
        """Called now and then; shows a line if another phase has begun, or when one is due: after a minute, as soon as
        the time that is left is known, and then at most once a minute.
        """
        phase, now = self._progress.phase, self._progress.elapsed()
        is_due = now >= self._due and not (self._progress.waits and now < LONGEST_SILENCE_S)
        if phase != self._phase or is_due:
            self._phase = phase
            if is_due or (now >= MINUTE and not self._progress.waits):
                slower = SLOWER if self._progress.budget_left is None else SLOWER_WITH_BUDGET
                self._due = now + max(MINUTE, min(now / slower, LONGEST_WAIT_S))
            state = self._progress.state()
            line = words(state)
            for listener in self._listeners:
                listener(line)
            if (left := state.left) is not None:
                times = (self._progress.elapsed(), left.low, left.high, left.middle)
                seconds_log.info("after %.0f s: %.0f to %.0f s left, middle %.0f", *times)


@contextmanager
def show_lines(progress: JobProgress, *listeners: Callable[[str], None]) -> Iterator[None]:
    with ticking(LineSchedule(progress, listeners).look, LOOK_EVERY_S, "progress"):
        yield


@contextmanager
def show_bar(progress: JobProgress) -> Iterator[None]:
    from rich.console import Console  # here, so that --help does not wait for it
    from rich.live import Live

    with Live(
        get_renderable=lambda: bar(progress.state()),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
    ):
        yield


def bar(state: JobState) -> "Table":
    """A line of the terminal: a bar as long as the share of the time that is over, and the words."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=1.0, completed=share_done(state), width=BAR_WIDTH), Text(words(state)))
    return row


def share_done(state: JobState) -> float:
    """Fraction of the job that is done, 0 to 1: of the time if its end is known, else of the steps."""
    rest = state.left.middle if state.left else state.at_most
    if rest is not None:
        return state.elapsed / (state.elapsed + max(rest, 0.0)) if state.elapsed > 0 else 0.0
    return state.done / state.steps if state.steps else 0.0


def words(state: JobState) -> str:
    """`phase 2 of 3: trials · 12 of 64 steps · 3 to 5 min left · best so far …`, without what is not known."""
    parts = [f"phase {state.number} of {state.phases}: {state.phase}"] if state.phase else ["starting"]
    parts += [f"{state.done} of {state.steps} steps"] if state.steps else []
    parts += [f"{range_words(state.left)} left"] if state.left and state.left.middle > 0 else []
    parts += [f"{clock(max(0.0, state.at_most))} of the budget left"] if state.at_most is not None else []
    parts += [f"best so far {state.best}"] if state.best else []
    return " · ".join(parts)


def range_words(left: TimeRange) -> str:
    """`20 to 40 s`, `3 to 5 min`, `1.5 to 2.5 h`; `about 3 min` where both ends are the same."""
    unit, size = ("s", 1.0) if left.high < 90 else ("min", 60.0) if left.high < 5400 else ("h", 3600.0)
    low, high = (f"{value / size:.1f}" if unit == "h" else f"{value / size:.0f}" for value in (left.low, left.high))
    return f"about {high} {unit}" if low == high else f"{low} to {high} {unit}"
