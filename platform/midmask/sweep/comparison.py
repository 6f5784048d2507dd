"""The final comparison: systems × fine-tuning seeds under one protocol, side by side on the cluster."""

from collections.abc import Sequence
from dataclasses import replace

from midmask.app.graph_progress import GraphProgress, measured_times
from midmask.app.observer import GraphObserver, TrackedSystem
from midmask.app.tracked_job import TrackedJob
from midmask.backend.executor import execute
from midmask.experiment.graph import Graph
from midmask.experiment.run import report_finished
from midmask.sweep.entrants import SPLITS, Entrant


def compare(entrants: Sequence[Entrant], job: TrackedJob, phase: str) -> None:
    """Evaluates every entrant on every split, and tracks it as a system. A step that several need is computed once.

    Args:
        phase: of the job's progress.

    Raises:
        RayError: of the first step that fails.
    """
    targets = [step for one in entrants for step in one.evaluations.values()]
    times = measured_times({step.fingerprint: step for one in targets for step in one.upstream()}.values(), job.storage)
    graph = Graph.left_in(job.storage, targets, times.weight)
    systems = [
        TrackedSystem(f"{one.label}, seed {one.seed}", one.recipe, one.evaluations, main=SPLITS[-1]) for one in entrants
    ]
    progress = GraphProgress(job.progress, graph.left.values(), job.use.side_by_side, phase)
    job = replace(job, use=replace(job.use, alone=job.use.side_by_side == 1))  # there are no trials any more
    observer = GraphObserver(job, systems, progress, has_run=lambda kind: kind.trains)
    report_finished(targets, job.storage, observer)  # not trainings, which are in the runs of their trials
    execute(graph, job.storage, job.use, observer)
