"""Measures TREC run files as one tracked job, with a nested run for each file: a system on the leaderboard."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from midmask.app.compute import compute
from midmask.app.job import Options
from midmask.app.lineage import all_datasets
from midmask.app.observer import TrackedSystem
from midmask.app.run_contents import RUN_FILE_TAGS, base_tags, log_report
from midmask.app.tracked_job import TrackedJob, open_job
from midmask.artifact import Artifact, Place, load
from midmask.backend.resources import whole
from midmask.experiment.report import results_table
from midmask.experiment.run_files import FIELDS
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten
from midmask.retrieve.run_file import COPIES_PARAM, DIGEST_PARAM, RunFileConfig
from midmask.tracking import RUN_FILE


def track_run_files(options: Options, recipe: Recipe, evaluations: Mapping[str, Step]) -> dict[str, Artifact]:
    """The evaluations of run files, by the names of their systems; what is finished is not computed again.

    Args:
        recipe: whose corpus and evaluation they are measured with.
    """
    storage = Place(options.storage)
    identity = fingerprint({"job": options.job, **{name: step.fingerprint for name, step in evaluations.items()}})
    about = {"midmask.recipe": "+".join(evaluations), "midmask.step": "job", "midmask.fingerprint": identity}
    tags = {**base_tags(options.job, recipe), **RUN_FILE_TAGS, **about}
    finished = all(step.is_finished(storage) for step in evaluations.values())
    name, use = f"{options.job}-{recipe.corpus.short_name}-{identity[:6]}", partial(whole, options.training_workers)
    with open_job(options, name, tags, _settings(recipe), finished=finished, share=use) as job:
        if job is not None:
            _run(job, recipe, evaluations)
        done = {name: load(step.place(storage)) for name, step in evaluations.items()}
        if job is not None:
            job.run.log_inputs(all_datasets(evaluations.values(), storage))
            log_report(job.run, results_table(done))
        return done


def _run(job: TrackedJob, recipe: Recipe, evaluations: Mapping[str, Step]) -> None:
    systems = [_system(name, recipe, step) for name, step in evaluations.items()]
    compute(job, systems, evaluations.values(), has_run=lambda kind: kind.is_collection)


def _system(name: str, recipe: Recipe, evaluation: Step) -> TrackedSystem:
    """What the leaderboard shows of a run file. Its params are the settings of its evaluation, and what was read."""
    reading = evaluation.inputs["ranked"]
    assert isinstance(reading.config, RunFileConfig), reading.name
    tags = {**RUN_FILE_TAGS, "midmask.recipe": name, RUN_FILE: reading.config.file}
    params = {**_settings(recipe), DIGEST_PARAM: reading.content["run"], "run.ties": reading.config.ties}
    if reading.config.leave_out_copies:
        params[COPIES_PARAM] = True
    return TrackedSystem(name, recipe, {name: evaluation}, name, tags, params)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Fields of a recipe that change what is measured of a run file, by dotted path."""
    wanted = {f"evaluation.{name}" for name in FIELDS}
    return {path: value for path, value in flatten(recipe).items() if path.startswith("corpus.") or path in wanted}
