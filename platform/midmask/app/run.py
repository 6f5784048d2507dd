"""Runs the steps of a job on the cluster, as one tracked run with a nested run for each step."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from midmask.app.graph_progress import GraphProgress
from midmask.app.job import Options
from midmask.app.lineage import all_datasets, run_name
from midmask.app.observer import GraphObserver, TrackedSystem
from midmask.app.run_contents import base_tags, log_report
from midmask.app.tracked_job import TrackedJob, link_finished_job
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
        if all(step.is_finished(storage) for step in targets.values()) and link_finished_job(tracker, name, tags):
            return {key: load(step.place(storage)) for key, step in targets.items()}
        for note in notes:
            log.warning("%s", note)
        connect()
        with tracker.run(name, tags=tags, params=flatten(recipe)) as parent:
            job = TrackedJob(options.job, tracker, parent, storage)
            run_recipe_steps(recipe, targets.values(), job, options.training_workers)
            done = {key: load(step.place(storage)) for key, step in targets.items()}
            parent.read(all_datasets(targets.values(), storage))
            if evaluations := {key: done[key] for key, step in targets.items() if step.name == "evaluate"}:
                log_report(parent, results_table(evaluations))
            return done


def run_recipe_steps(recipe: Recipe, targets: Iterable[Step], job: TrackedJob, workers: int | None) -> None:
    """Runs what is left of one recipe's steps, each with a nested run; links those that were finished before.

    Args:
        workers: processes of a training; None: as many as there are GPUs, else one.
    """
    graph = Graph.left_in(job.storage, targets)
    observer = GraphObserver(job, [TrackedSystem(recipe.name, recipe)], GraphProgress(graph.left.values()))
    report_finished(graph, job.storage, observer)
    execute(graph, job.storage, whole(workers), observer)
