"""A job's tracked run, the runs nested in it, and the observer of a graph of steps that writes to them."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from midmask.app.job import Options, log_file, mistake_in
from midmask.app.progress import JobProgress, StepProgress, details_log, displayed
from midmask.app.run_contents import (
    artifact_tag,
    base_tags,
    log_evaluation,
    log_inputs,
    log_recipe,
    log_result,
    metric_keys,
    step_name,
    step_params,
    step_tags,
)
from midmask.backend.cluster import Resources, connect
from midmask.core.config import fingerprint, flatten
from midmask.errors import last_line
from midmask.estimate import estimate
from midmask.experiment.events import Begun, Ended, Failed, Logged, StepEvent, TimeIsUp
from midmask.experiment.graph import Step
from midmask.experiment.kinds import StepKind
from midmask.experiment.schema import Recipe
from midmask.store.artifact import Artifact, load
from midmask.store.place import Place
from midmask.tracking.names import EXECUTOR, LOG, PROGRESS
from midmask.tracking.runs import TrackedRun, Tracker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedJob:
    """A job while its run is open."""

    name: str  # the tag `midmask.job` of its runs
    tracker: Tracker
    run: TrackedRun  # in which all other runs of the job are nested
    storage: Place  # of the steps' artifacts
    use: Resources  # resources of its trainings
    progress: JobProgress = field(default_factory=JobProgress)  # of all steps that it computes

    def open_run(self, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> TrackedRun:
        """A nested run to write to."""
        return self.tracker.run(name, tags={**tags, EXECUTOR: self.use.trains_in}, params=params, parent=self.run.id)

    def link_finished(self, name: str, tags: Mapping[str, str]) -> bool:
        """Nests a link to the finished run with the same step and fingerprint; false if there is no such run."""
        return self.tracker.link_finished(name, tags, self.run.id) is not None


@contextmanager
def open_job(
    options: Options,
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, Any],
    *,
    finished: bool,
    share: Callable[[], Resources],
) -> Iterator[TrackedJob | None]:
    """A job on the cluster with its run open; None, with a link to the run of an earlier job, if that has done all.

    Args:
        finished: whether all that the job makes is in the storage.
        share: what of the cluster trainings may use, asked once it is connected; a refusal ends the job without a run.
    """
    storage = Place(options.storage)
    with Tracker(options.tracking_uri, options.home) as tracker:
        if finished and (earlier := tracker.link_finished(name, tags, None)):
            log.info("already computed in run %s; nothing to do", earlier)
            yield None
            return
        # beside the artifacts if these lie on a disk, else in the project's folder
        logs = (Path(storage.uri) if storage.is_path else options.home) / "logs"
        with log_file(logs, options.job) as log_path:
            log.info("every line of this job's log is in %s", log_path)
            connect()
            use = share()
            progress = JobProgress(partial(_expected_seconds, storage=storage, use=use))
            run = tracker.run(name, tags={**tags, LOG: str(log_path), EXECUTOR: use.trains_in}, params=params)
            with run, displayed(progress, lambda line: run.tag({PROGRESS: line})):
                yield TrackedJob(options.job, tracker, run, storage, use, progress)


def _expected_seconds(steps: Sequence[Step], *, storage: Place, use: Resources) -> dict[str, float]:
    """Fingerprint -> the part of the time by the clock that each of the steps will take, as a dry run says."""
    beside = use.side_by_side
    plan = estimate(steps, storage, workers=beside, per_training=use.processes, side_by_side=beside > 1)
    return {charge.step.fingerprint: 3600 * charge.hours for charge in plan.charges}


@dataclass(frozen=True)
class TrackedSystem:
    """A recipe with one seed, for which steps are computed: of a job, a benchmark, or a sweep's final comparison.

    When all evaluations are finished, the system gets a run of its name with their measures. Without evaluations it
    gets no run, as for a recipe that a job runs by itself, where each evaluation has a run.
    """

    name: str
    recipe: Recipe
    evaluations: Mapping[str, Step] = field(default_factory=dict)  # by name
    main: str = ""  # name of the evaluation whose artifact pages open for the system
    tags: Mapping[str, str] = field(default_factory=dict)  # of the system's run, beside or in place of the recipe's
    params: Mapping[str, Any] = field(default_factory=dict)  # of the system's run; empty: all fields of the recipe

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all evaluations of the system: the tag `midmask.fingerprint` of its run."""
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
        *,
        has_run: Callable[[StepKind], bool] = lambda kind: True,
        keep_going: bool = False,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._job = job
        self._systems = systems
        self._lines: dict[str, StepProgress] = {}
        self._has_run = has_run
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

    def __call__(self, event: StepEvent) -> None:
        match event:
            case Begun(step):
                self._begin(step)
            case Logged(step, at, values):
                self._log(step, at, values)
            case Ended(step, artifact, cached):
                self._end(step, artifact, cached=cached)
            case Failed(step, error, lost):
                self._fail(step, error, lost)

    def _begin(self, step: Step) -> None:
        owner, name = self._owner(step), self._name(step)
        self._job.progress.begin(step)
        title = f"{name} ({owner.name})" if owner.evaluations else name
        self._lines[step.fingerprint] = StepProgress(title, lambda line: details_log.info("%s", line))
        if self._has_run(step.kind):
            details_log.info("%s: starts", name)
            self._open[step.fingerprint] = self._open_run(step)

    def _log(self, step: Step, at: int, values: Mapping[str, float]) -> None:
        self._job.progress.advance(step, at)
        self._lines[step.fingerprint].update(at, step.optimiser_steps, values.get("train/loss"))
        if run := self._open.get(step.fingerprint):
            run.log(metric_keys(step.name, values), step=at)

    def _end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        """A step is computed, or was finished before; the second call for a step changes nothing."""
        if step.fingerprint in self._ended:
            return
        self._ended.add(step.fingerprint)
        if self._has_run(step.kind):
            self._track(step, artifact, cached=cached)
        for system in self._evaluating.get(step.fingerprint, ()):
            self._track_if_measured(system)
        if not cached:
            self._job.progress.end(step)
            count = sum(bool(system.evaluations) for system in self._systems)
            measured = f" · {len(self._measured)} of {count} systems measured" if count else ""
            details_log.info("%d of %d steps%s", *self._job.progress.steps(), measured)

    def _fail(self, step: Step, error: Exception, lost: Sequence[Step]) -> None:
        self._job.progress.drop(lost)
        if run := self._open.pop(step.fingerprint, None):  # none if an input could not be read
            run.finish("failed")
        reason = mistake_in(error) or last_line(error)
        if isinstance(error, TimeIsUp):
            details_log.info("%s", error)
        elif self._keep_going:
            details_log.error("%s (%s) failed: %s", step.name, step.fingerprint, reason, exc_info=error)
        why = reason if isinstance(error, TimeIsUp) else f"{step.name}: {reason}"  # TimeIsUp names the step itself
        for lost_step in lost:
            for system in self._evaluating.get(lost_step.fingerprint, ()):
                self.failures.setdefault(system.name, why)

    def _owner(self, step: Step) -> TrackedSystem:
        return self._owners.get(step.fingerprint, self._systems[0])

    def _recipe_tags(self, step: Step) -> dict[str, str]:
        return base_tags(self._job.name, self._owner(step).recipe)

    def _tags(self, step: Step) -> dict[str, str]:
        return {**self._recipe_tags(step), **step_tags(step)}

    def _name(self, step: Step) -> str:
        return step_name(step, self._tags(step))

    def _open_run(self, step: Step) -> TrackedRun:
        params = {**flatten(self._owner(step).recipe), **step_params(step)}
        run = self._job.open_run(self._name(step), self._tags(step), params)
        run.watch()
        log_recipe(run, self._owner(step).recipe)
        if not step.kind.is_collection and step.name != "evaluate":  # these log their inputs with their result
            log_inputs(run, step, self._job.storage, self._recipe_tags(step))
        return run

    def _track(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        """Ends the step's run; of a step that was finished before, links the run that computed it, if it is tracked."""
        if cached:
            details_log.info("%s: taken from %s", step.name, artifact.place)
            if self._job.link_finished(self._name(step), {**self._tags(step), **artifact_tag(artifact)}):
                return
        with self._open.pop(step.fingerprint, None) or self._open_run(step) as run:
            log_result(run, step, artifact, self._job.storage, self._recipe_tags(step))
        details_log.info("%s: done, in %s", step.name, artifact.place)

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
            log_recipe(run, system.recipe)
            for step in evaluations.values():
                log_evaluation(run, step, storage, recipe_tags)
            run.tag(artifact_tag(load(evaluations[system.main].place(storage))))
