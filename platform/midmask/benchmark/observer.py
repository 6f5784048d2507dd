"""What happens while a benchmark runs, written to MLflow and, as a line now and then, to the terminal.

Nested runs are: trainings, with their curves; steps that go through a whole collection; and every cell, with its
measures, its files and what it cost.
"""

import logging
import time
from collections.abc import Sequence

from midmask.app.job import mistake_in
from midmask.app.observe import BM25, TrackingObserver, artifact_tag, base_tags, log_evaluation
from midmask.artifact import Artifact, Place, load
from midmask.backend.executor import WHOLE_COLLECTION
from midmask.benchmark.layout import BenchmarkCell, Layout
from midmask.experiment.costs import TRAINING
from midmask.experiment.eta import StepTimes
from midmask.experiment.graph import Graph
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten
from midmask.progress import EVERY, clock
from midmask.tracking import TrackedRun, Tracker

log = logging.getLogger(__name__)


class BenchmarkObserver:
    """The observer of a benchmark. `failures`: cell -> why it was not measured."""

    def __init__(
        self,
        layout: Layout,
        tracker: Tracker,
        parent: TrackedRun,
        job: str,
        storage: Place,
        graph: Graph,
        pace: StepTimes,
        side_by_side: int,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._tracker = tracker
        self._parent = parent
        self._job = job
        self._storage = storage
        self._graph = graph
        self._pace = pace
        self._side_by_side = side_by_side
        self._total = len(graph.left)
        self._began: dict[str, float] = {}
        self._shown = 0.0
        self._runs: dict[str, TrackingObserver] = {}
        self._cells = layout.cells
        self._tracked: set[str] = set()
        self._owner: dict[str, BenchmarkCell] = {}
        self._evaluating: dict[str, list[BenchmarkCell]] = {}
        for cell in layout.cells:
            for evaluation in cell.evaluations.values():
                self._evaluating.setdefault(evaluation.fingerprint, []).append(cell)
                for step in evaluation.upstream():
                    self._owner.setdefault(step.fingerprint, cell)

    def link_finished(self) -> None:
        """Links what earlier runs have computed: trainings, and cells all of whose evaluations are there."""
        linked: set[str] = set()
        for cell in self._cells:
            for evaluation in cell.evaluations.values():
                for step in evaluation.upstream():
                    if step.name in TRAINING and step.fingerprint not in linked and self._is_there(step):
                        linked.add(step.fingerprint)
                        self._observer(step).end(step, load(step.place(self._storage)), cached=True)
            self._track_if_measured(cell)

    def begin(self, step: Step) -> None:
        self._began[step.fingerprint] = time.monotonic()
        if step.name in (*TRAINING, *WHOLE_COLLECTION):
            self._runs[step.fingerprint] = self._observer(step)
            self._runs[step.fingerprint].begin(step)

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        if step.fingerprint in self._runs:
            self._runs[step.fingerprint].log(step, at, values)

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        self._pace.add(step, time.monotonic() - self._began.pop(step.fingerprint))
        if step.fingerprint in self._runs:
            self._runs.pop(step.fingerprint).end(step, artifact, cached=cached)
        for cell in self._evaluating.get(step.fingerprint, ()):
            self._track_if_measured(cell)
        self._show()

    def fail(self, step: Step, error: Exception, lost: Sequence[Step]) -> None:
        reason = mistake_in(error) or str(error).strip().splitlines()[-1]
        log.error("%s (%s) failed: %s", step.name, step.fingerprint, reason, exc_info=error)
        self._began.pop(step.fingerprint, None)  # not there if an input could not be read
        if observer := self._runs.pop(step.fingerprint, None):
            observer.fail(step, error, lost)
        for one in lost:
            for cell in self._evaluating.get(one.fingerprint, ()):
                self.failures.setdefault(cell.name, f"{step.name}: {reason}")

    def _observer(self, step: Step) -> TrackingObserver:
        recipe = self._owner[step.fingerprint].recipe
        return TrackingObserver(self._tracker, self._parent, self._job, recipe, self._storage)

    def _is_there(self, step: Step) -> bool:
        return step.is_finished(self._storage)

    def _track_if_measured(self, cell: BenchmarkCell) -> None:
        """A run with the cell's measures, or a link to the one that has them; once."""
        if cell.name in self._tracked or not all(self._is_there(step) for step in cell.evaluations.values()):
            return
        self._tracked.add(cell.name)
        identity = fingerprint({" ".join(name): step.fingerprint for name, step in cell.evaluations.items()})
        system = {**base_tags(self._job, cell.recipe), **(BM25 if cell.key.system == "bm25" else {})}
        own = {"midmask.step": "evaluate", "midmask.fingerprint": identity, "midmask.setting": cell.key.setting}
        tags = {**system, **own}
        finished = self._tracker.find(identity, step="evaluate").finished
        if finished:
            self._tracker.link_cached(finished, f"{cell.name} (cached)", tags=tags, parent=self._parent.id)
            return
        with self._tracker.run(cell.name, tags=tags, params=flatten(cell.recipe), parent=self._parent.id) as run:
            for step in cell.evaluations.values():
                log_evaluation(run, step, self._storage, system)
            run.tag(artifact_tag(load(cell.evaluations[cell.main].place(self._storage))))

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown < EVERY and self._graph.left:
            return
        self._shown = now
        log.info(
            "%d of %d steps · %d of %d cells measured%s",
            self._total - len(self._graph.left),
            self._total,
            len(self._tracked),
            len(self._cells),
            self._left(),
        )

    def _left(self) -> str:
        """The time left, from what was measured; 'more than' while a kind of step has not been."""
        steps = list(self._graph.left.values())
        if not steps:
            return ""
        now = time.monotonic()
        known = [(step, seconds) for step in steps if (seconds := self._pace.of(step)) is not None]
        left = sum(max(0.0, seconds - (now - self._began.get(step.fingerprint, now))) for step, seconds in known)
        word = "about" if len(known) == len(steps) else "more than"
        return f" · {word} {clock(left / self._side_by_side)} left"
