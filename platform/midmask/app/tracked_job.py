"""A job's own tracked run, the runs nested in it, and links to runs that earlier jobs have finished."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midmask.artifact import Place
from midmask.tracking import TrackedRun, Tracker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedJob:
    """A job while its run is open.

    name: the job's, as its runs' tag `midmask.job` has it. run: its own run, in which all others are nested. storage:
    of the steps' artifacts.
    """

    name: str
    tracker: Tracker
    run: TrackedRun
    storage: Place

    def open_run(self, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> TrackedRun:
        """A nested run to write to."""
        return self.tracker.run(name, tags=tags, params=params, parent=self.run.id)

    def link_finished(self, name: str, tags: Mapping[str, str]) -> bool:
        """Nests a link to the finished run with the same step and fingerprint; false if there is no such run."""
        return link_finished(self.tracker, name, tags, self.run.id) is not None


def link_finished(tracker: Tracker, name: str, tags: Mapping[str, str], parent: str | None = None) -> str | None:
    """Links the finished run that has the same `midmask.step` and `midmask.fingerprint`.

    Returns:
        That run's id, None if there is no such run.
    """
    finished = tracker.find(tags["midmask.fingerprint"], step=tags["midmask.step"]).finished
    if finished:
        tracker.link_cached(finished, f"{name} (cached)", tags=tags, parent=parent)
    return finished


def link_finished_job(tracker: Tracker, name: str, tags: Mapping[str, str]) -> bool:
    """Links the finished run of the same job and logs a line; false if there is no such run."""
    finished = link_finished(tracker, name, tags)
    if finished:
        log.info("already computed in the tracked run %s; nothing to compute", finished)
    return finished is not None
