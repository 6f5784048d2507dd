"""Runs the steps of a job on the cluster, as one tracked run with a nested run for each step."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from midmask.app.compute import compute
from midmask.app.job import Options
from midmask.app.lineage import all_datasets, run_name
from midmask.app.observer import TrackedSystem
from midmask.app.run_contents import base_tags, log_report
from midmask.app.tracked_job import TrackedJob, open_job
from midmask.artifact import Artifact, Place, load
from midmask.backend.resources import Resources, whole
from midmask.experiment.report import results_table
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten

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
    finished = all(step.is_finished(storage) for step in targets.values())
    name, use = run_name(options.job, tags, identity), partial(whole, options.training_workers)
    with open_job(options, name, tags, flatten(recipe), finished=finished, share=use) as job:
        if job is None:
            return _load(targets, storage)
        for note in notes:
            log.warning("%s", note)
        run_recipe_steps(recipe, targets.values(), job, job.use)
        done = _load(targets, storage)
        job.run.log_inputs(all_datasets(targets.values(), storage))
        if evaluations := {key: done[key] for key, step in targets.items() if step.name == "evaluate"}:
            log_report(job.run, results_table(evaluations))
        return done


def _load(targets: Mapping[str, Step], storage: Place) -> dict[str, Artifact]:
    return {key: load(step.place(storage)) for key, step in targets.items()}


def run_recipe_steps(
    recipe: Recipe, targets: Iterable[Step], job: TrackedJob, use: Resources, phase: str | None = None
) -> None:
    """Runs what is left of one recipe's steps, each with a nested run; links those that were finished before.

    Args:
        phase: of the job's progress, which these steps are; none: the graph's own.
    """
    compute(replace(job, use=use), [TrackedSystem(recipe.name, recipe)], targets, phase=phase)
