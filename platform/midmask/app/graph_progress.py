"""Lines of progress for a graph of steps: how far a training is, how many steps are done, how much time is left."""

import logging
import time
from collections.abc import Iterable

from midmask.artifact import Place, load
from midmask.experiment.eta import StepTimes
from midmask.experiment.step import Step
from midmask.progress import EVERY, StepProgress, clock

log = logging.getLogger(__name__)


def measured_times(steps: Iterable[Step], storage: Place) -> StepTimes:
    """The seconds of those steps that were finished before."""
    times = StepTimes()
    for step in steps:
        if step.is_finished(storage):
            times.add(step, float(load(step.place(storage)).result.get("seconds", 0.0)))
    return times


class GraphProgress:
    """Logs at most one line in `EVERY` seconds for each running step, and one for the graph.

    Args:
        steps: what is left to compute.
        side_by_side: how many steps run at once.
        times: seconds of steps that were computed before; without, time left is known from this run alone.
    """

    def __init__(self, steps: Iterable[Step], side_by_side: int = 1, times: StepTimes | None = None) -> None:
        self._left = {step.fingerprint: step for step in steps}
        self._total = len(self._left)
        self._side_by_side = side_by_side
        self._times = times or StepTimes()
        self._began: dict[str, float] = {}
        self._running: dict[str, StepProgress] = {}
        self._shown = 0.0

    def begin(self, step: Step, name: str) -> None:
        """A step starts, whose lines begin with `name`."""
        self._began[step.fingerprint] = time.monotonic()
        self._running[step.fingerprint] = StepProgress(name, lambda line: log.info("%s", line))

    def update(self, step: Step, at: int, loss: float | None) -> None:
        """A training has done `at` of its steps."""
        self._running[step.fingerprint].update(at, step.optimiser_steps, loss)

    def end(self, step: Step, note: str) -> None:
        """A step is done; the graph's line has `note` behind the number of steps."""
        self._times.add(step, time.monotonic() - self._began[step.fingerprint])
        self.drop([step])
        now = time.monotonic()
        if now - self._shown >= EVERY or not self._left:
            self._shown = now
            log.info("%d of %d steps%s%s", self._total - len(self._left), self._total, note, self._time_left())

    def drop(self, steps: Iterable[Step]) -> None:
        """These steps are done or given up."""
        for step in steps:
            for known in (self._left, self._began, self._running):
                known.pop(step.fingerprint, None)

    def _time_left(self) -> str:
        """From what was measured; 'more than' while a kind of step has not been."""
        if not self._left:
            return ""
        now = time.monotonic()
        known = [(name, seconds) for name, step in self._left.items() if (seconds := self._times.of(step)) is not None]
        left = sum(max(0.0, seconds - (now - self._began.get(name, now))) for name, seconds in known)
        word = "about" if len(known) == len(self._left) else "more than"
        return f" · {word} {clock(left / self._side_by_side)} left"
