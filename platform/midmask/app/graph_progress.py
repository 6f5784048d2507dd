"""The progress of a graph of steps: reported to the job, and a line of the log now and then for each training."""

import logging
from collections.abc import Iterable
from typing import get_args

from midmask.app.job_progress import JobProgress
from midmask.experiment.kinds import Phase
from midmask.experiment.step import Step
from midmask.progress import StepProgress

log = logging.getLogger(__name__)

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
        phases = {phase: left} if phase else {name: [] for name in PHASES}
        for step in left if phase is None else ():
            phases[step.kind.phase].append(step)
        job.plan({name: own for name, own in phases.items() if own or name == phase})

    def begin(self, step: Step, name: str) -> None:
        """A step starts, whose lines begin with `name`."""
        if self._trainings is not None:
            own = step.kind.phase
            if own == TRAININGS or (own == SEARCHES and not self._trainings):
                self._job.reach(own)
        lanes = 1 if step.kind.whole_collection else self._side_by_side
        self._job.begin(step.fingerprint, step.name, lanes)
        self._running[step.fingerprint] = StepProgress(name, lambda line: log.info("%s", line))

    def update(self, step: Step, at: int, loss: float | None) -> None:
        """A training has done `at` of its steps."""
        self._job.advance(step.fingerprint, at / step.optimiser_steps)
        self._running[step.fingerprint].update(at, step.optimiser_steps, loss)

    def end(self, step: Step, note: str) -> None:
        """A step is done; the log's line has `note` behind the number of steps."""
        self._ended += 1
        self._forget_training(step)
        self._running.pop(step.fingerprint, None)
        self._job.end(step.fingerprint, step.name)
        log.info("%d of %d steps%s", self._ended, self._total, note)

    def drop(self, steps: Iterable[Step]) -> None:
        """These steps are given up."""
        for step in steps:
            self._forget_training(step)
            self._running.pop(step.fingerprint, None)
            self._job.drop([step.fingerprint])

    def _forget_training(self, step: Step) -> None:
        if self._trainings is not None:
            self._trainings.discard(step.fingerprint)
