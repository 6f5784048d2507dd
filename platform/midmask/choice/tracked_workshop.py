"""A contest's steps on the cluster of a tracked job: trainings and cells are runs nested in the job's."""

from collections.abc import Callable, Mapping, Sequence

from midmask.app.compute import compute
from midmask.app.observer import TrackedSystem
from midmask.app.tracked_job import TrackedJob
from midmask.artifact import Artifact, Place, load
from midmask.benchmark.cells import BenchmarkCell
from midmask.benchmark.run import has_run, tracked_system
from midmask.choice.contest_terms import DOCUMENTS
from midmask.choice.workshop import evaluations_of
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
        compute(self._job, [TrackedSystem(recipe.name, recipe)], [step], phase=self._phase)
        return load(step.place(self.storage))

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        targets = evaluations_of(cells)
        if all(step.is_finished(self.storage) for step in targets):
            return {}
        systems = [tracked_system(cell) for cell in cells]
        return compute(self._job, systems, targets, phase=self._phase, has_run=has_run, keep_going=True, until=until)
