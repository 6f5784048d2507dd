"""Where the steps of a contest are computed: in this process; `tracked_workshop` has the one on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from midmask.artifact import Artifact, Place
from midmask.benchmark.cells import BenchmarkCell
from midmask.experiment.graph import Graph
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step


class Workshop(Protocol):
    """Computes steps into a storage; what is there already is not computed again."""

    @property
    def storage(self) -> Place: ...

    @property
    def lanes(self) -> int:
        """How many trainings run side by side."""

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        """What is computed from now on is this part of the contest.

        Args:
            best: the best result so far, in words; "" if there is none.
            left: seconds of the budget.
        """

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        """The artifact of a step of a recipe."""

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        """Computes the evaluations of cells as far as the time allows.

        Args:
            until: of `time.monotonic`.

        Returns:
            Name of each cell that failed or was interrupted -> why.
        """


class LocalWorkshop:
    """In this process, one step after another, without tracking."""

    lanes = 1

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def storage(self) -> Place:
        return self._runner.storage

    def announce(self, phase: str, best: str, left: Callable[[], float]) -> None:
        """Nothing is shown here but the lines of steps."""

    def make(self, step: Step, recipe: Recipe) -> Artifact:
        return self._runner.run(step)

    def measure(self, cells: Sequence[BenchmarkCell], until: float) -> Mapping[str, str]:
        self._runner.run_until(Graph.left_in(self.storage, evaluations_of(cells)), until)
        return {}  # a failure is raised


def evaluations_of(cells: Sequence[BenchmarkCell]) -> list[Step]:
    return [step for cell in cells for step in cell.evaluations.values()]
