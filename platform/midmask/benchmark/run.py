"""A benchmark from end to end: shared steps once, every cell on the cluster, one tracked experiment, a report.

Nested runs are: trainings, with their curves; steps that go through a whole collection; and every cell, with its
measures, its files and what it cost.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from midmask.app.run import compute
from midmask.app.run_contents import BM25_TAGS, all_datasets
from midmask.app.tracked_job import TrackedJob, TrackedSystem, open_job
from midmask.backend.cluster import share_cluster
from midmask.benchmark.job import Job
from midmask.benchmark.layout import BenchmarkCell
from midmask.benchmark.overlap import log_warnings
from midmask.benchmark.records import RecordWriter
from midmask.benchmark.report import report_of
from midmask.core.config import flatten
from midmask.experiment.events import Observer, StepEvent, unobserved
from midmask.experiment.graph import Step
from midmask.retrieve.bm25 import BM25
from midmask.store.place import Place


def run_benchmark(job: Job) -> tuple[str, dict[str, str]]:
    """Runs what is missing of a benchmark and writes its report: its text, and why cells could not be measured."""
    benchmark, options = job.layout.benchmark, job.options
    tags = {
        "midmask.job": options.job,
        "midmask.recipe": benchmark.name,
        "midmask.objective": "none",
        "midmask.step": "benchmark",
        "midmask.benchmark": benchmark.name,
        "midmask.corpus": "+".join(dict.fromkeys(cell.recipe.corpus.short_name for cell in job.layout.cells)),
        "midmask.fingerprint": job.fingerprint,
    }
    name = f"{options.job}-{benchmark.name}-{job.fingerprint[:6]}"
    share = partial(share_cluster, len(job.layout.cells), options.workers, options.workers_per_training)
    with open_job(options, name, tags, flatten(benchmark), finished=not job.left(), share=share) as tracked:
        if tracked is None:
            if job.records:
                _record_writer(job, job.records).write_measured()
            return report_of(job.layout, job.storage, job.out, {}), {}
        cells = job.unrecorded()
        steps = replace(job.layout, cells=tuple(cells)).steps().values()
        record = _record_writer(job, job.records) if job.records else unobserved

        def watch(event: StepEvent) -> None:
            log_warnings(event)
            record(event)

        failures = measure_cells(tracked, cells, job.left(), finished=steps, watch=watch)
        text = report_of(job.layout, job.storage, job.out, failures)
        run = tracked.run
        for path in sorted(path for path in job.out.rglob("*") if path.is_file()):
            run.log_file(path, str(Path("report") / path.parent.relative_to(job.out)).removesuffix("/."))
        run.log_inputs(all_datasets(job.layout.steps().values(), job.storage))
        run.describe(text)
        run.log({"benchmark/cells": len(job.layout.cells), "benchmark/failed": len(failures)}, step=0)
        run.finish("failed" if failures else "finished")
        return text, failures


def measure_cells(
    job: TrackedJob,
    cells: Sequence[BenchmarkCell],
    targets: Iterable[Step],
    *,
    finished: Iterable[Step] | None = None,
    watch: Observer = unobserved,
    until: float = math.inf,
) -> dict[str, str]:
    """`compute` of cells: each is a tracked run, as are trainings and steps that go through a whole collection. What
    does not need a failed step is still computed.
    """
    return compute(
        job,
        [_tracked_system(cell) for cell in cells],
        targets,
        has_run=lambda kind: kind.trains or kind.whole_collection,
        finished=finished,
        watch=watch,
        keep_going=True,
        until=until,
    )


def _record_writer(job: Job, folder: Place) -> RecordWriter:
    return RecordWriter(folder, job.unrecorded(), job.storage, lambda cell: _tracked_system(cell).fingerprint)


def _tracked_system(cell: BenchmarkCell) -> TrackedSystem:
    """A cell as the observer tracks it."""
    tags = {"midmask.setting": cell.key.setting, **(BM25_TAGS if cell.key.system == BM25 else {})}
    evaluations = {" ".join(name): step for name, step in cell.evaluations.items()}
    return TrackedSystem(cell.name, cell.recipe, evaluations, " ".join(cell.main), tags)
