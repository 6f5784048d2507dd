"""How far a job is (phase, steps, time left, best result so far), and how standard error shows it.

Observers report to the one `JobProgress` of a job from the driver's threads, and a display reads it from another. On a
terminal rich shows a bar, above which other lines go; elsewhere a line is logged when a phase begins, and then one a
minute. The console always shows this module's log records.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from midmask.core.process import ticking
from midmask.core.words import clock, duration
from midmask.experiment.graph import Step

log = logging.getLogger(__name__)
details_log = logging.getLogger(f"{__name__}.details")
"""Logger of lines that only the log file gets."""

STEP_LINE_S, JOB_LINE_S, LOOK_S = 10.0, 60.0, 0.5
"""Seconds between two lines of a training, between two of a job, and between two looks at whether one is due."""
TRUST_S = 30.0
"""Seconds of work for which the plan is believed against the clock: the first steps have not yet told the pace."""


class StepProgress:
    """Lines for one running step; silent in between."""

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._name, self._show = name, show
        self._first: tuple[float, int] | None = None
        self._shown = 0.0

    def update(self, at: int, of: int, loss: float | None) -> None:
        """`at` of `of` optimiser steps are done."""
        now = time.monotonic()
        began, start = self._first = self._first or (now, at)
        if now - self._shown < STEP_LINE_S and at < of:
            return
        self._shown = now
        rate = (at - start) / (now - began) if now > began else 0.0
        left = f" · {rate:.1f} steps/s · {clock((of - at) / rate)} left" if rate > 0 else ""
        value = f" · loss {loss:.4f}" if loss is not None else ""
        self._show(f"{self._name}: step {at} of {of}{left}{value}")


@dataclass
class _Left:
    """A step that has not ended."""

    step: Step
    expected: float | None  # seconds, its part of the job's time by the clock; None: not known
    begun: bool = False
    share: float = 0.0  # that is done, from 0 to 1


class JobProgress:
    """Collects what the observers of a job report.

    The time that is left is what the plan expects of the steps that are left, times the measured pace: how much longer
    the job took so far than the plan had expected of what is done.

    Args:
        expect: steps -> fingerprint -> the part of the time by the clock that each will take, in seconds.
        clock: seconds that go forward; tests give another one.
    """

    def __init__(
        self,
        expect: Callable[[Sequence[Step]], Mapping[str, float]] = lambda steps: {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget_left: Callable[[], float] | None = None  # seconds after which a job with a time budget ends
        self.phase = ""  # of a sweep or a choice
        self.best = ""  # result so far
        self._expect, self._clock, self._began = expect, clock, clock()
        self._expected: dict[str, float] = {}  # seconds by fingerprint, of every step that was ever planned
        self._left: dict[str, _Left] = {}  # by fingerprint
        self._ended, self._worked = 0, 0.0  # steps that are done, and the seconds that were expected of them
        self._lock = threading.Lock()
        self._latest = "starting"
        self._shown: str | None = None
        self._due = JOB_LINE_S

    def plan(self, steps: Iterable[Step]) -> None:
        """Adds steps to those that are left."""
        planned = {step.fingerprint: step for step in steps}
        new = [step for key, step in planned.items() if key not in self._expected]
        if new and self.budget_left is None:
            try:
                self._expected |= self._expect(new)
            except Exception as error:  # a job does not fail because its end is unknown
                details_log.info("the time that is left is not known: %s", error, exc_info=True)
        with self._lock:
            for key, step in planned.items():
                self._left.setdefault(key, _Left(step, self._expected.get(key)))

    def enter(self, phase: str, steps: Iterable[Step] = ()) -> None:
        """A phase begins, and only these steps are left: not all that was planned before was needed, as of pruned
        trials.
        """
        with self._lock:
            self.phase, self._left = phase, {}
        self.plan(steps)

    def begin(self, step: Step) -> None:
        """A step starts. One that was not planned takes the place of the first of its kind that waits: a search draws
        the points of its trials while it runs.
        """
        with self._lock:
            waiting = (key for key, left in self._left.items() if left.step.name == step.name and not left.begun)
            stand_in = next(waiting, None)
            if step.fingerprint not in self._left and stand_in is not None:
                self._left[step.fingerprint] = self._left.pop(stand_in)
            if left := self._left.get(step.fingerprint):
                left.begun = True
            self._latest = step.name

    def advance(self, step: Step, at: int) -> None:
        """A training has done so many of its optimiser steps."""
        with self._lock:
            if left := self._left.get(step.fingerprint):
                left.share = at / step.optimiser_steps

    def end(self, step: Step) -> None:
        """A step is done."""
        with self._lock:
            if left := self._left.pop(step.fingerprint, None):
                self._worked += left.expected or 0.0
            self._ended += 1

    def drop(self, steps: Iterable[Step]) -> None:
        """These steps will not be done."""
        with self._lock:
            for step in steps:
                self._left.pop(step.fingerprint, None)

    def elapsed(self) -> float:
        """Seconds since the job began."""
        return self._clock() - self._began

    def seconds_left(self) -> float | None:
        """Seconds by the clock until the job ends; None if nothing is known of a step."""
        if self.budget_left is not None:
            return max(0.0, self.budget_left())
        with self._lock:
            shares = [(each.expected, each.share) for each in self._left.values()]
            worked = self._worked
        known = [(seconds, share) for seconds, share in shares if seconds is not None]
        if len(known) < len(shares):
            return None
        worked += sum(seconds * share for seconds, share in known)
        pace = (self.elapsed() + TRUST_S) / (worked + TRUST_S)
        return pace * sum(seconds * (1 - share) for seconds, share in known)

    def steps(self) -> tuple[int, int]:
        """(finished steps, all that are planned so far)."""
        with self._lock:
            return self._ended, self._ended + len(self._left)

    def __str__(self) -> str:
        """`trials · 12 of 64 steps · about 4 min left · best so far …`, without what is not known; a job without phases
        has the step that began last in their place.
        """
        (done, steps), rest = self.steps(), self.seconds_left()
        count = steps and f"{done} of {steps} steps"
        left = (
            f"{clock(rest or 0.0)} of the budget left" if self.budget_left else rest and f"about {duration(rest)} left"
        )
        best = self.best and f"best so far {self.best}"
        return " · ".join(part for part in (self.phase or self._latest, count, left, best) if part)

    def due_line(self) -> str | None:
        """The line that is due: when a phase begins, and a minute after the last one."""
        if self.phase == self._shown and self.elapsed() < self._due:
            return None
        self._shown, self._due = self.phase, self.elapsed() + JOB_LINE_S
        return str(self)


@contextmanager
def displayed(progress: JobProgress, tell: Callable[[str], None]) -> Iterator[None]:
    """Shows the job's progress until the block ends.

    Args:
        tell: gets every line too, also where a terminal shows a bar in place of lines.
    """
    on_terminal = sys.stderr.isatty()

    def look(show: Callable[[], None]) -> None:
        show()
        if line := progress.due_line():
            if not on_terminal:
                log.info("%s", line)
            tell(line)

    with _bar(progress) if on_terminal else nullcontext(lambda: None) as show:
        with ticking(partial(look, show), LOOK_S, "progress"):
            yield


@contextmanager
def _bar(progress: JobProgress) -> Iterator[Callable[[], None]]:
    """Draws a bar as long as the share of the time that is over, or of the steps where the end is not known."""
    from rich.console import Console  # here, so that --help does not wait for it
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=30), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2, transient=True) as bar:
        task = bar.add_task("")

        def show() -> None:
            elapsed, rest, (done, steps) = progress.elapsed(), progress.seconds_left(), progress.steps()
            over, whole = (done, steps) if rest is None else (elapsed, elapsed + rest)
            bar.update(task, description=str(progress), completed=over, total=max(whole, LOOK_S))

        yield show
