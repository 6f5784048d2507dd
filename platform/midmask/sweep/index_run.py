"""Runs the comparison of indexes on the cluster, as one tracked run with a nested run for each index."""

from functools import partial

from midmask.app.compute import compute
from midmask.app.job import Options
from midmask.app.lineage import all_datasets, run_name
from midmask.app.observer import TrackedSystem
from midmask.app.run_contents import base_tags, log_report
from midmask.app.tracked_job import TrackedJob, open_job
from midmask.artifact import Place, load
from midmask.backend.resources import whole
from midmask.experiment.kinds import StepKind
from midmask.experiment.schema import Recipe
from midmask.identity import fingerprint, flatten
from midmask.sweep.index_sweep import IndexSweep, index_table


def run_index_sweep(options: Options, recipe: Recipe, sweep: IndexSweep) -> str:
    """Runs what is missing, and returns the table, which is also the job's report in its tracked run."""
    storage, targets = Place(options.storage), sweep.targets
    identity = fingerprint({"job": options.job, **{name: step.fingerprint for name, step in targets.items()}})
    tags = {**base_tags(options.job, recipe), "midmask.step": "job", "midmask.fingerprint": identity}
    finished = all(step.is_finished(storage) for step in targets.values())
    name, use = run_name(options.job, tags, identity), partial(whole, options.training_workers)
    with open_job(options, name, tags, flatten(recipe), finished=finished, share=use) as job:
        if job is not None:
            _run(job, sweep)
        done = {key: load(step.place(storage)) for key, step in targets.items()}
        table = index_table(sweep, done, storage)
        if job is not None:
            job.run.log_inputs(all_datasets(targets.values(), storage))
            log_report(job.run, table)
        return table


def _run(job: TrackedJob, sweep: IndexSweep) -> None:
    systems = [
        TrackedSystem(f"{own.name} {label}", own, {label: sweep.evaluations[label]}, label)
        for label, own in sweep.recipes.items()
    ]
    compute(job, systems, sweep.targets.values(), has_run=_has_run)


def _has_run(kind: StepKind) -> bool:
    """Searches and evaluations have none: they stand in the runs of their indexes."""
    return kind.trains or kind.whole_collection or kind.name in ("adopt", "encode", "index", "time_searches")
