"""Runs the steps of a job on the cluster, as one tracked run with a nested run for each step."""

import logging
from collections.abc import Mapping, Sequence

from midmask.app.job import Options
from midmask.app.lineage import all_datasets, run_name
from midmask.app.observe import TrackingObserver, base_tags, log_report
from midmask.artifact import Artifact, Place, load
from midmask.backend.connection import connect
from midmask.backend.executor import execute
from midmask.backend.resources import whole
from midmask.experiment.graph import Graph
from midmask.experiment.report import results_table
from midmask.experiment.run import report_finished
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten
from midmask.tracking import Tracker

log = logging.getLogger(__name__)


def run_tracked(
    options: Options, recipe: Recipe, targets: Mapping[str, Step], notes: Sequence[str]
) -> dict[str, Artifact]:
    """The targets' artifacts, by name; what is finished is not computed again, and links the run that computed it.

    Args:
        notes: warnings, logged if anything is computed.
    """
    storage = Place(options.storage)
    identity = fingerprint({"job": options.job, **{name: step.fingerprint for name, step in targets.items()}})
    tags = {**base_tags(options.job, recipe), "midmask.step": "job", "midmask.fingerprint": identity}
    name = run_name(options.job, tags, identity)
    with Tracker(options.tracking_uri, options.home) as tracker:
        finished = tracker.find(identity, step="job").finished
        if finished and all(step.is_finished(storage) for step in targets.values()):
            tracker.link_cached(finished, f"{name} (cached)", tags=tags)
            log.info("already computed in the tracked run %s; nothing to compute", finished)
            return {key: load(step.place(storage)) for key, step in targets.items()}
        for note in notes:
            log.warning("%s", note)
        connect()
        with tracker.run(name, tags=tags, params=flatten(recipe)) as parent:
            observer = TrackingObserver(tracker, parent, options.job, recipe, storage)
            graph = Graph.left_in(storage, targets.values())
            report_finished(graph, storage, observer)
            execute(graph, storage, whole(options.training_workers), observer)
            done = {key: load(step.place(storage)) for key, step in targets.items()}
            parent.read(all_datasets(targets.values(), storage))
            if evaluations := {key: done[key] for key, step in targets.items() if step.name == "evaluate"}:
                log_report(parent, results_table(evaluations))
            return done
