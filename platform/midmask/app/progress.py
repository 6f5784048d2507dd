"""How far a job is (phase, steps, time left, best result so far), and how standard error shows it.

There is one `JobProgress` for each job: observers report to it from the driver's threads, and a display reads it from
another. On a terminal rich shows a bar, above which other lines go; elsewhere a line is logged when a phase begins, and
then one a minute. The console always shows this module's log records.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from typing import get_args

from midmask.core.process import ticking
from midmask.core.words import clock, duration
from midmask.experiment.costs import StepTimes
from midmask.experiment.graph import Step
from midmask.experiment.kinds import Phase

log = logging.getLogger(__name__)
details_log = logging.getLogger(f"{__name__}.details")
"""Logger of lines that only the log file gets."""

STEP_LINE_S, JOB_LINE_S, LOOK_S = 10.0, 60.0, 0.5
"""Seconds between two lines of a training, between two of a job, and between two looks at whether one is due."""
SPAN_S = 5.0
"""Seconds between two reports that tell the pace of a step: some arrive together."""


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
    """A step that has not ended; times are in seconds."""

    step: Step
    expected: float | None  # by the plan
    began: float | None = None
    lanes: int = 1  # steps that run at once
    first: tuple[float, float] | None = None  # when it first reported its share that is done, and which
    ends: float | None = None  # by the pace since then: what came before was its start

    def rest(self, measured: float | None, now: float) -> float | None:
        """Its part of the time by the clock, from now on; `measured`: the part of a whole step of its kind."""
        whole = self.expected if measured is None else measured
        if self.ends is not None:
            return max(0.0, self.ends - now) / self.lanes
        if self.began is None or whole is None:
            return whole
        return max(0.0, whole - (now - self.began) / self.lanes)


class JobProgress:
    """Collects what the observers of a job report.

    The time that is left is that of the steps that are left: as long as steps of the same kind took (`StepTimes`), else
    as long as the plan expects; of a step that reports its share, at its pace so far.

    Args:
        phases: in order; `plan` adds those that are not among them.
        expect: steps -> fingerprint -> the part of the time by the clock that each will take, in seconds; without one
            no time is known before a step of each kind has ended.
        clock: seconds that go forward; tests give another one.
    """

    def __init__(
        self,
        phases: Sequence[str] = (),
        expect: Callable[[Sequence[Step]], Mapping[str, float]] = lambda steps: {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget_left: Callable[[], float] | None = None  # seconds after which a job with a time budget ends
        self.phase = next(iter(phases), "")  # may be set while steps of those before it are left
        self._expect, self._clock, self._began = expect, clock, clock()
        self._expected: dict[str, float] = {}  # seconds by fingerprint, of every step that was ever planned
        self._left: dict[str, dict[str, _Left]] = {name: {} for name in phases}  # by phase and fingerprint
        self._done, self._times = 0, StepTimes()  # of parts of the time by the clock
        self._lock = threading.Lock()
        self._best, self._shown, self._due = "", "", JOB_LINE_S

    def plan(self, phases: Mapping[str, Iterable[Step]]) -> None:
        """Sets the steps that are left in these phases. A step that several phases need belongs to the first."""
        planned = {phase: {step.fingerprint: step for step in steps} for phase, steps in phases.items()}
        unknown = {key: step for steps in planned.values() for key, step in steps.items() if key not in self._expected}
        if unknown and self.budget_left is None:
            try:
                self._expected |= self._expect(list(unknown.values()))
            except Exception as error:  # a job does not fail because its end is unknown
                details_log.info("the time that is left is not known: %s", error, exc_info=True)
        with self._lock:
            for phase, steps in planned.items():
                self._left[phase] = {}
                new = {key: step for key, step in steps.items() if not self._holder(key)}
                self._left[phase] = {key: _Left(step, self._expected.get(key)) for key, step in new.items()}
            self.phase = self.phase or next(iter(self._left), "")

    def enter(self, phase: str) -> None:
        """A phase begins. Those before it are over, also if not all of their steps were needed, as of pruned trials."""
        with self._lock:
            over = takewhile(lambda name: name != phase, self._left)
            self._left.update({name: {} for name in over})
            self.phase = phase

    def begin(self, key: str, kind: str, lanes: int = 1) -> None:
        """A step starts, beside lanes - 1 others. One that was not planned takes the place of one of its kind and phase
        that waits, if there is one: a search draws the points of its trials while it runs.
        """
        with self._lock:
            steps = self._left.get(self.phase, {})
            waiting = (name for name, left in steps.items() if left.step.name == kind and left.began is None)
            if not self._holder(key) and (stand_in := next(waiting, None)) is not None:
                steps[key] = steps.pop(stand_in)
            if left := self._holder(key).get(key):
                left.began, left.lanes = self._clock(), lanes

    def advance(self, key: str, share: float) -> None:
        """This share of a step is done, from 0 to 1."""
        with self._lock:
            left = self._holder(key).get(key)
            if left is not None:
                now = self._clock()
                at, done = left.first = left.first or (now, share)
                if share > done and now >= at + SPAN_S:
                    left.ends = now + (1 - share) * (now - at) / (share - done)

    def end(self, key: str) -> None:
        """A step is done."""
        with self._lock:
            left = self._holder(key).pop(key, None)
            if left is not None and left.began is not None:
                self._times.add(left.step, (self._clock() - left.began) / left.lanes)
            self._done += 1

    def drop(self, keys: Iterable[str]) -> None:
        """These steps will not be done."""
        with self._lock:
            for key in keys:
                self._holder(key).pop(key, None)

    def _holder(self, key: str) -> dict[str, _Left]:
        """The steps of the phase that this one belongs to; empty if it was not planned, or is over."""
        return next((steps for steps in self._left.values() if key in steps), {})

    def best(self, text: str) -> None:
        """The best result so far."""
        self._best = text

    def elapsed(self) -> float:
        """Seconds since the job began."""
        return self._clock() - self._began

    def seconds_left(self) -> float | None:
        """Seconds by the clock until the job ends; None if nothing is known of a step."""
        if self.budget_left is not None:
            return max(0.0, self.budget_left())
        with self._lock:
            left, now = [left for steps in self._left.values() for left in steps.values()], self._clock()
            rest = [each.rest(self._times.of(each.step), now) for each in left]
        known = [seconds for seconds in rest if seconds is not None]
        return sum(known) if len(known) == len(rest) else None

    def steps(self) -> tuple[int, int]:
        """(finished steps, all that are planned so far)."""
        with self._lock:
            return self._done, self._done + sum(map(len, self._left.values()))

    def __str__(self) -> str:
        """`phase 2 of 3: trials · 12 of 64 steps · about 4 min left · best so far …`, without what is not known."""
        names, (done, steps), rest = list(self._left), self.steps(), self.seconds_left()
        at = f"phase {names.index(self.phase) + 1} of {len(names)}: {self.phase}" if self.phase in names else "starting"
        left = (
            f"{clock(rest or 0.0)} of the budget left" if self.budget_left else rest and f"about {duration(rest)} left"
        )
        best = self._best and f"best so far {self._best}"
        return " · ".join(part for part in (at, steps and f"{done} of {steps} steps", left, best) if part)

    def due_line(self) -> str | None:
        """The line that is due: when a phase begins, and a minute after the last one."""
        if self.phase == self._shown and self.elapsed() < self._due:
            return None
        self._shown, self._due = self.phase, self.elapsed() + JOB_LINE_S
        return str(self)


_, TRAININGS, SEARCHES = PHASES = get_args(Phase)
"""Phases of a graph whose job has no others."""


class GraphProgress:
    """Passes on what happens to the steps of one graph.

    Args:
        job: of which the graph is a part.
        steps: what is left to compute.
        side_by_side: how many steps run at once, but for those that go through a whole collection.
        phase: of the job; none: three phases, by the kind of step. The second begins with the first training, the third
            with the first search after the last training.
    """

    def __init__(
        self, job: JobProgress, steps: Iterable[Step], side_by_side: int = 1, phase: str | None = None
    ) -> None:
        left = list(steps)
        self._job, self._total, self._ended = job, len(left), 0
        self._side_by_side = side_by_side
        self._trainings = {step.fingerprint for step in left if step.kind.trains} if phase is None else None
        self._running: dict[str, StepProgress] = {}
        by_phase = {name: [step for step in left if step.kind.phase == name] for name in PHASES}
        job.plan({phase: left} if phase else {name: steps for name, steps in by_phase.items() if steps})

    def begin(self, step: Step, name: str) -> None:
        """A step starts, whose lines begin with `name`."""
        if self._trainings is not None:
            phase = step.kind.phase
            if phase == TRAININGS or (phase == SEARCHES and not self._trainings):
                self._job.phase = phase
        lanes = 1 if step.kind.whole_collection else self._side_by_side
        self._job.begin(step.fingerprint, step.name, lanes)
        self._running[step.fingerprint] = StepProgress(name, lambda line: details_log.info("%s", line))

    def update(self, step: Step, at: int, loss: float | None) -> None:
        """A training has done `at` of its steps."""
        self._job.advance(step.fingerprint, at / step.optimiser_steps)
        self._running[step.fingerprint].update(at, step.optimiser_steps, loss)

    def end(self, step: Step, note: str) -> None:
        """A step is done; the log's line has `note` behind the number of steps."""
        self._ended += 1
        self._job.end(step.fingerprint)
        self.drop([step])
        details_log.info("%d of %d steps%s", self._ended, self._total, note)

    def drop(self, steps: Iterable[Step]) -> None:
        """These steps are given up."""
        for step in steps:
            self._running.pop(step.fingerprint, None)
            if self._trainings is not None:
                self._trainings.discard(step.fingerprint)
            self._job.drop([step.fingerprint])


@contextmanager
def displayed(progress: JobProgress, tell: Callable[[str], None]) -> Iterator[None]:
    """Shows the job's progress until the block ends.

    Args:
        tell: gets every line too, also where a terminal shows a bar in place of lines.
    """
    on_terminal = sys.stderr.isatty()

    def look() -> None:
        if line := progress.due_line():
            if not on_terminal:
                log.info("%s", line)
            tell(line)

    with _bar(progress) if on_terminal else nullcontext(), ticking(look, LOOK_S, "progress"):
        yield


@contextmanager
def _bar(progress: JobProgress) -> Iterator[None]:
    from rich.console import Console  # here, so that --help does not wait for it
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=30), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2, transient=True) as bar:
        task = bar.add_task("")

        def update() -> None:
            """The bar is as long as the share of the time that is over, or of the steps where the end is not known."""
            elapsed, rest, (done, steps) = progress.elapsed(), progress.seconds_left(), progress.steps()
            over, whole = (done, steps) if rest is None else (elapsed, elapsed + rest)
            bar.update(task, description=str(progress), completed=over, total=max(whole, LOOK_S))

        with ticking(update, LOOK_S, "bar"):
            yield
