"""A job's own tracked run, the runs nested in it, and links to runs that earlier jobs have finished."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from midmask.app.job import Options
from midmask.artifact import Place
from midmask.backend.connection import connect
from midmask.backend.resources import Resources
from midmask.tracking import TrackedRun, Tracker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedJob:
    """A job while its run is open. name: the tag `midmask.job` of its runs. run: the run in which all others are
    nested. storage: of the steps' artifacts. use: what its trainings may use.
    """

    name: str
    tracker: Tracker
    run: TrackedRun
    storage: Place
    use: Resources

    def open_run(self, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> TrackedRun:
        """A nested run to write to."""
        return self.tracker.run(name, tags=tags, params=params, parent=self.run.id)

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
) -> Iterator[TrackedJob | None]:
    """A job on the cluster with its run open; None, with a link to the run of an earlier job, if that has done all.

    Args:
        finished: whether all that the job makes is in the storage.
        share: what of the cluster trainings may use, asked once it is connected; a refusal ends the job without a run.
    """
    with Tracker(options.tracking_uri, options.home) as tracker:
        if finished and (earlier := _link_finished(tracker, name, tags, None)):
            log.info("already computed in the tracked run %s; nothing to compute", earlier)
            yield None
            return
        connect()
        use = share()
        with tracker.run(name, tags=tags, params=params) as run:
            yield TrackedJob(options.job, tracker, run, Place(options.storage), use)


def _link_finished(tracker: Tracker, name: str, tags: Mapping[str, str], parent: str | None) -> str | None:
    """The id of the finished run that is now linked."""
    finished = tracker.find(tags["midmask.fingerprint"], step=tags["midmask.step"]).finished
    if finished:
        tracker.link_cached(finished, f"{name} (cached)", tags=tags, parent=parent)
    return finished
