"""A benchmark from end to end: shared steps once, every cell on the cluster, one tracked experiment, a report."""

import logging
from pathlib import Path

from midmask.app.lineage import all_datasets
from midmask.artifact import load
from midmask.backend.connection import connect
from midmask.backend.executor import execute
from midmask.backend.resources import share
from midmask.benchmark.job import Job, WriteReport
from midmask.benchmark.observer import BenchmarkObserver
from midmask.experiment.eta import StepTimes
from midmask.experiment.graph import Graph
from midmask.identity import flatten
from midmask.tracking import TrackedRun, Tracker

log = logging.getLogger(__name__)


def run_benchmark(job: Job, write_report: WriteReport) -> tuple[str, dict[str, str]]:
    """Runs what is missing of a benchmark and writes its report: its text, and why cells could not be measured."""
    wanted, options = job.layout.benchmark, job.options
    tags = {
        "midmask.job": options.job,
        "midmask.recipe": wanted.name,
        "midmask.objective": "none",
        "midmask.step": "benchmark",
        "midmask.benchmark": wanted.name,
        "midmask.corpus": job.layout.cells[0].recipe.corpus.short_name,
        "midmask.fingerprint": job.fingerprint,
    }
    name = f"{options.job}-{wanted.name}-{job.fingerprint[:6]}"
    with Tracker(options.tracking_uri, options.home) as tracker:
        finished = tracker.find(job.fingerprint, step="benchmark").finished
        if finished and not job.left():
            tracker.link_cached(finished, f"{name} (cached)", tags=tags)
            log.info("already computed in the tracked run %s; nothing to compute", finished)
            return write_report(job.layout, job.storage, job.out, {}), {}
        connect()
        with tracker.run(name, tags=tags, params=flatten(wanted)) as parent:
            observer = _run(job, tracker, parent)
            text = write_report(job.layout, job.storage, job.out, observer.failures)
            for path in sorted(path for path in job.out.rglob("*") if path.is_file()):
                parent.log_file(path, str(Path("report") / path.parent.relative_to(job.out)).removesuffix("/."))
            parent.read(all_datasets(job.layout.steps().values(), job.storage))
            parent.describe(text)
            parent.log({"benchmark/cells": len(job.layout.cells), "benchmark/failed": len(observer.failures)}, step=0)
            parent.finish("failed" if observer.failures else "finished")
            return text, observer.failures


def _run(job: Job, tracker: Tracker, parent: TrackedRun) -> BenchmarkObserver:
    pace = _pace(job)
    use = share(len(job.layout.cells), job.options.workers, job.options.workers_per_training)
    graph = Graph.left_in(job.storage, job.left(), pace.weight)
    observer = BenchmarkObserver(
        job.layout, tracker, parent, job.options.job, job.storage, graph, pace, use.side_by_side
    )
    observer.link_finished()
    execute(graph, job.storage, use, observer, keep_going=True)
    return observer


def _pace(job: Job) -> StepTimes:
    """What earlier runs have measured of this benchmark's steps."""
    pace = StepTimes()
    for step in job.layout.steps().values():
        if job.is_finished(step):
            pace.add(step, float(load(step.place(job.storage)).result.get("seconds", 0.0)))
    return pace
