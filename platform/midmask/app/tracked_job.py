"""A job's own tracked run, the runs nested in it, and links to runs that earlier jobs have finished."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from midmask.app.console import log_file
from midmask.app.display import displayed
from midmask.app.job import Options
from midmask.app.job_progress import JobProgress
from midmask.artifact import Place
from midmask.backend.aside import compute_aside
from midmask.backend.connection import connect
from midmask.backend.resources import Resources
from midmask.estimate import Shape, estimate
from midmask.estimate.devices import this_machine
from midmask.experiment.step import Step
from midmask.tracking import LOG, PROGRESS, TrackedRun, Tracker
from midmask.tracking.names import EXECUTOR

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedJob:
    """A job while its run is open. name: the tag `midmask.job` of its runs. run: the run in which all others are
    nested. storage: of the steps' artifacts. use: what its trainings may use. progress: of all that it computes.
    """

    name: str
    tracker: Tracker
    run: TrackedRun
    storage: Place
    use: Resources
    progress: JobProgress = field(default_factory=JobProgress)

    def open_run(self, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> TrackedRun:
        """A nested run to write to."""
        return self.tracker.run(name, tags={**tags, EXECUTOR: self.use.executor}, params=params, parent=self.run.id)

    def link_finished(self, name: str, tags: Mapping[str, str]) -> bool:
        """Nests a link to the finished run with the same step and fingerprint; false if there is no such run."""
        return _link_finished(self.tracker, name, tags, self.run.id) is not None


@contextmanager
def open_job(
    options: Options,
    name: str,
    tags: Mapping[str, str],
    params: Mapping[str, Any],
    *,
    finished: bool,
    share: Callable[[], Resources],
    phases: Sequence[str] = (),
) -> Iterator[TrackedJob | None]:
    """A job on the cluster with its run open; None, with a link to the run of an earlier job, if that has done all.

    Args:
        finished: whether all that the job makes is in the storage.
        share: what of the cluster trainings may use, asked once it is connected; a refusal ends the job without a run.
        phases: of the job's progress, in order; those of the graphs that it runs are added.
    """
    storage = Place(options.storage)
    with Tracker(options.tracking_uri, options.home) as tracker:
        if finished and (earlier := _link_finished(tracker, name, tags, None)):
            log.info("already computed in run %s; nothing to do", earlier)
            yield None
            return
        with log_file(log_folder(options), options.job) as log_path:
            log.info("every line of this job's log is in %s", log_path)
            connect()
            use = share()
            progress = JobProgress(phases, partial(expected_seconds, storage=storage, use=use))
            run = tracker.run(name, tags={**tags, LOG: str(log_path), EXECUTOR: use.executor}, params=params)
            with run, displayed(progress, lambda line: run.tag({PROGRESS: line})):
                yield TrackedJob(options.job, tracker, run, storage, use, progress)


def log_folder(options: Options) -> Path:
    """Beside the artifacts if they lie on a disk, else in the project's folder."""
    storage = Place(options.storage)
    return (Path(storage.uri) if storage.is_path else options.home) / "logs"


def expected_seconds(steps: Sequence[Step], *, storage: Place, use: Resources) -> dict[str, float]:
    """Fingerprint -> the share of the time by the clock that a step is expected to take, in seconds."""
    found: dict[str, float] = compute_aside(_estimate_seconds, steps, storage, use, this_machine())
    return found


def _estimate_seconds(steps: Sequence[Step], storage: Place, use: Resources, shape: Shape) -> dict[str, float]:
    """On the driver's machine, whose devices a worker without a GPU does not see."""
    own = {"workers": use.side_by_side, "per_training": use.workers}
    plan = estimate(steps, storage, shape, **own, side_by_side=use.side_by_side > 1)
    return {charge.step.fingerprint: 3600 * plan.hours(charge) for charge in plan.charges}


def _link_finished(tracker: Tracker, name: str, tags: Mapping[str, str], parent: str | None) -> str | None:
    """The id of the finished run that is now linked."""
    finished = tracker.find(tags["midmask.fingerprint"], step=tags["midmask.step"]).finished
    if finished:
        tracker.link_cached(finished, f"{name} (cached)", tags=tags, parent=parent)
    return finished
