"""A recipe's steps run and tracked in this process, as a job runs them on a cluster."""

from collections.abc import Iterable

from midmask.app.graph_progress import GraphProgress
from midmask.app.observer import GraphObserver, TrackedSystem
from midmask.app.tracked_job import TrackedJob
from midmask.experiment.graph import Graph
from midmask.experiment.run import Runner, report_finished
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.experiment.steps import LOCAL


def run_tracked_here(job: TrackedJob, recipe: Recipe, targets: Iterable[Step]) -> None:
    graph = Graph.left_in(job.storage, targets)
    observer = GraphObserver(
        job, [TrackedSystem(recipe.name, recipe)], GraphProgress(job.progress, graph.left.values())
    )
    report_finished(graph.there.values(), job.storage, observer)
    runner = Runner(job.storage, LOCAL, observer)
    while ready := graph.ready():
        runner.run_next(graph, ready[0])
