"""The observer of a graph of steps: tracked runs for steps and for the systems that they measure, and progress."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midmask.app.exits import mistake_in
from midmask.app.graph_progress import GraphProgress
from midmask.app.lineage import step_name
from midmask.app.run_contents import (
    artifact_tag,
    base_tags,
    log_evaluation,
    log_inputs,
    log_result,
    metric_keys,
    step_params,
    step_tags,
)
from midmask.app.tracked_job import TrackedJob
from midmask.artifact import Artifact, load
from midmask.errors import last_line
from midmask.experiment.kinds import StepKind
from midmask.experiment.run import TimeIsUp
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten
from midmask.tracking import TrackedRun

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedSystem:
    """A recipe with one seed, for which steps are computed: of a job, a benchmark, or a sweep's final comparison.

    evaluations: by name. As soon as all of them are finished, the system gets a run of that name with their measures.
    Empty: no such run, as for a recipe that a job runs by itself, where each evaluation has a run. main: name of the
    evaluation whose artifact pages open for the system. tags: of the system's run, beside or in place of the recipe's.
    params: of the system's run; empty: all fields of the recipe.
    """

    name: str
    recipe: Recipe
    evaluations: Mapping[str, Step] = field(default_factory=dict)
    main: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Of all its evaluations: the tag `midmask.fingerprint` of its run."""
        return fingerprint({name: step.fingerprint for name, step in self.evaluations.items()})


class GraphObserver:
    """Tracks and shows the steps that are computed, and links the runs of those that were finished before.

    `failures`: name of a system -> why it was not measured.

    Args:
        systems: at least one. A step belongs to the first system whose evaluations need it, else to the first system.
        has_run: which kinds of steps get a run of their own.
        keep_going: whether other steps still run after one has failed. Its error is then logged here; else the caller
            of the executor gets it.
    """

    def __init__(
        self,
        job: TrackedJob,
        systems: Sequence[TrackedSystem],
        progress: GraphProgress,
        *,
        has_run: Callable[[StepKind], bool] = lambda kind: True,
        keep_going: bool = False,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._job = job
        self._systems = systems
        self._progress = progress
        self._kind_has_run = has_run
        self._keep_going = keep_going
        self._open: dict[str, TrackedRun] = {}
        self._ended: set[str] = set()
        self._measured: set[str] = set()
        self._owners: dict[str, TrackedSystem] = {}
        self._evaluating: dict[str, list[TrackedSystem]] = {}
        for system in systems:
            for evaluation in system.evaluations.values():
                self._evaluating.setdefault(evaluation.fingerprint, []).append(system)
                for step in evaluation.upstream():
                    self._owners.setdefault(step.fingerprint, system)

    def begin(self, step: Step) -> None:
        owner, name = self._owner(step), self._name(step)
        self._progress.begin(step, f"{name} ({owner.name})" if owner.evaluations else name)
        if self._has_run(step):
            log.info("%s: starts", name)
            self._open[step.fingerprint] = self._open_run(step)

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        self._progress.update(step, at, values.get("train/loss"))
        if run := self._open.get(step.fingerprint):
            run.log(metric_keys(step.name, values), step=at)

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        """A step is computed, or was finished before; the second call for a step changes nothing."""
        if step.fingerprint in self._ended:
            return
        self._ended.add(step.fingerprint)
        if self._has_run(step):
            self._track(step, artifact, cached=cached)
        for system in self._evaluating.get(step.fingerprint, ()):
            self._track_if_measured(system)
        if not cached:
            count = sum(bool(system.evaluations) for system in self._systems)
            self._progress.end(step, f" · {len(self._measured)} of {count} systems measured" if count else "")

    def fail(self, step: Step, error: Exception, lost: Sequence[Step]) -> None:
        self._progress.drop(lost)
        if run := self._open.pop(step.fingerprint, None):  # none if an input could not be read
            run.finish("failed")
        reason = mistake_in(error) or last_line(error)
        if isinstance(error, TimeIsUp):
            log.info("%s", error)
        elif self._keep_going:
            log.error("%s (%s) failed: %s", step.name, step.fingerprint, reason, exc_info=error)
        why = reason if isinstance(error, TimeIsUp) else f"{step.name}: {reason}"  # TimeIsUp names the step itself
        for one in lost:
            for system in self._evaluating.get(one.fingerprint, ()):
                self.failures.setdefault(system.name, why)

    def _owner(self, step: Step) -> TrackedSystem:
        return self._owners.get(step.fingerprint, self._systems[0])

    def _has_run(self, step: Step) -> bool:
        return self._kind_has_run(step.kind)

    def _recipe_tags(self, step: Step) -> dict[str, str]:
        return base_tags(self._job.name, self._owner(step).recipe)

    def _tags(self, step: Step) -> dict[str, str]:
        return {**self._recipe_tags(step), **step_tags(step)}

    def _name(self, step: Step) -> str:
        return step_name(step, self._tags(step))

    def _open_run(self, step: Step) -> TrackedRun:
        params = {**flatten(self._owner(step).recipe), **step_params(step)}
        run = self._job.open_run(self._name(step), self._tags(step), params)
        self._job.tracker.watch(run)
        if not step.kind.is_collection and step.name != "evaluate":  # these log their inputs with their result
            log_inputs(run, step, self._job.storage, self._recipe_tags(step))
        return run

    def _track(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        """Ends the step's run; of a step that was finished before, links the run that computed it, if it is tracked."""
        if cached:
            log.info("%s: taken from %s", step.name, artifact.place)
            if self._job.link_finished(self._name(step), {**self._tags(step), **artifact_tag(artifact)}):
                return
        with self._open.pop(step.fingerprint, None) or self._open_run(step) as run:
            log_result(run, step, artifact, self._job.storage, self._recipe_tags(step))
        log.info("%s: done, in %s", step.name, artifact.place)

    def _track_if_measured(self, system: TrackedSystem) -> None:
        """A run with the system's measures, or a link to the run that has them; once."""
        storage, evaluations = self._job.storage, system.evaluations
        if system.name in self._measured or not all(step.is_finished(storage) for step in evaluations.values()):
            return
        self._measured.add(system.name)
        recipe_tags = base_tags(self._job.name, system.recipe)
        tags = {**recipe_tags, **system.tags, "midmask.step": "evaluate", "midmask.fingerprint": system.fingerprint}
        if self._job.link_finished(system.name, tags):
            return
        with self._job.open_run(system.name, tags, system.params or flatten(system.recipe)) as run:
            for step in evaluations.values():
                log_evaluation(run, step, storage, recipe_tags)
            run.tag(artifact_tag(load(evaluations[system.main].place(storage))))
