"""A contest's steps on the cluster of a tracked job: trainings and cells are runs nested in the job's."""

from collections.abc import Callable, Mapping, Sequence

from midmask.app.graph_progress import GraphProgress, measured_times
from midmask.app.observer import GraphObserver, TrackedSystem
from midmask.app.tracked_job import TrackedJob
from midmask.artifact import Artifact, Place, load
from midmask.backend.executor import execute
from midmask.benchmark.cells import BenchmarkCell
from midmask.benchmark.run import cells_observer
from midmask.choice.contest_terms import DOCUMENTS
from midmask.choice.workshop import evaluations_of
from midmask.experiment.graph import Graph
from midmask.experiment.run import report_finished
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step


class TrackedWorkshop:
    """As many trainings side by side as the job may use."""

    def __init__(self, job: TrackedJob) -> None:
        self._job = job
        self._phase = DOCUMENTS

    @property
    def storage(self) -> Place:
        return self._job.storage

    @property
    def lanes(self) -> int:
        return self._job.use.side_by_side

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        self._phase, self._job.progress.budget_left = phase, left
        self._job.progress.enter(phase)
        self._job.progress.best(best)

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        graph = Graph.left_in(self.storage, [step])
        progress = GraphProgress(self._job.progress, graph.left.values(), phase=self._phase)
        observer = GraphObserver(self._job, [TrackedSystem(recipe.name, recipe)], progress)
        execute(graph, self.storage, self._job.use, observer)
        return load(step.place(self.storage))

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        targets = evaluations_of(cells)
        steps = {one.fingerprint: one for target in targets for one in target.upstream()}.values()
        times = measured_times(steps, self.storage)
        graph = Graph.left_in(self.storage, targets, times.weight)
        if not graph.left:
            return {}
        observer = cells_observer(self._job, cells, graph, self._phase)
        report_finished(graph.there.values(), self.storage, observer)
        execute(graph, self.storage, self._job.use, observer, keep_going=True, until=until)
        return observer.failures
