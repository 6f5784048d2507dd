"""How far a job is: its phase, its steps, the time that is left and the best result so far.

One object for each job. Observers report to it from the driver's threads, and a display reads it from another.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from midmask.experiment.kinds import KINDS
from midmask.experiment.step import Step
from midmask.experiment.time_left import TimeLeft, TimeRange

log = logging.getLogger(__name__)

Expect = Callable[[Sequence[Step]], Mapping[str, float]]
"""Steps -> fingerprint -> the share of the time by the clock that each is expected to take, in seconds."""

FIRST_MINUTE = 60.0
"""Seconds before a time is told: by then something has been measured in most jobs."""

LONG_S = 20.0
"""Seconds before steps are estimated, which takes some seconds of a processor: a short job is not worth them."""


@dataclass(frozen=True)
class JobState:
    """What is shown of a job. number: of the phase, from 1. done, steps: of all phases that are planned so far. left:
    None in the first minute, and before any step was measured. at_most: seconds after which the job ends by itself, of
    a job with a budget of time. best: the best result so far; "" before there is one.
    """

    number: int
    phases: int
    phase: str
    done: int
    steps: int
    elapsed: float
    left: TimeRange | None
    at_most: float | None
    best: str


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
        """These steps are what is left of these phases. A step that several phases need belongs to the first."""
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
            for name, own in self._phases.items():
                if name == phase:
                    break
                self._forget(own)
            self.phase = phase

    def reach(self, phase: str) -> None:
        """A phase begins, while steps of those before it may be left."""
        self.phase = phase

    def begin(self, key: str, kind: str, lanes: int = 1) -> None:
        """A step starts, beside lanes - 1 others. One that was not planned stands for one of its kind and phase."""
        with self._lock:
            own = self._phases.get(self.phase, {})
            stand_in = self._left.begin(key, kind, self._clock(), lanes, own)
            if stand_in is not None:
                self._steps[key] = self._steps.pop(stand_in)
                del own[stand_in]
                own[key] = None

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
            log.info("the time that is left is not known: %s", error, exc_info=True)
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
        """What is shown."""
        told = self.elapsed() >= FIRST_MINUTE and self._expect is not None and self.budget_left is None
        with self._lock:
            told &= self._is_told()
            names = list(self._phases)
            return JobState(
                number=names.index(self.phase) + 1 if self.phase in names else 0,
                phases=len(names),
                phase=self.phase,
                done=len(self._done),
                steps=len(self._done) + len(self._open()),
                elapsed=self.elapsed(),
                left=self._left.left(self._clock()) if told else None,
                at_most=self.budget_left() if self.budget_left else None,
                best=self._best,
            )

    def _is_told(self) -> bool:
        """Whether the planned steps are estimated and enough of them measured."""
        return self._known and self._left.is_measured

    def _open(self) -> list[str]:
        """Steps of all phases that have not ended."""
        return [key for own in self._phases.values() for key in own if key not in self._done and key in self._steps]

    def _add(self, phase: str, step: Step) -> None:
        if not any(step.fingerprint in own for own in self._phases.values()):
            self._phases[phase][step.fingerprint] = None
            self._steps[step.fingerprint] = step
            self._left.add(step.fingerprint, step.name)

    def _forget(self, keys: Iterable[str]) -> None:
        lost = [key for key in keys if key not in self._done]
        self._left.drop(lost)
        for key in lost:
            self._steps.pop(key, None)
            for own in self._phases.values():
                own.pop(key, None)
