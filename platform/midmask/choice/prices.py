"""What rounds and test queries of a contest cost, in seconds by the clock."""

from collections.abc import Callable, Iterable, Sequence

from midmask.benchmark.cells import BenchmarkCell
from midmask.choice.contenders import Contender, Size
from midmask.choice.workshop import Workshop, evaluations_of
from midmask.estimate import Estimate, estimate

CellsOf = Callable[[Contender, Size, str], list[BenchmarkCell]]
"""A contender, the length of its trainings, a split -> its cells."""

SizedContenders = Iterable[tuple[Contender, Size, str]]

NOTICEABLE = 1.0
"""Seconds: what takes less tells mostly how long it takes to begin."""


class Prices:
    """The estimate's figures. Those of trainings follow the trainings that are finished in the storage, as everywhere;
    those of encoding and searching follow what they took in this contest.

    per_utilisation: seconds that encoding and searching take, over those of the estimate, over the utilisation that it
    took for the machine's, to which it is inverse; None: not known yet.

    Args:
        cells_of: what is computed of a contender. per_utilisation: as an earlier process learned it.
    """

    def __init__(self, cells_of: CellsOf, workshop: Workshop, per_utilisation: float | None) -> None:
        self.per_utilisation = per_utilisation
        self._cells_of, self._workshop = cells_of, workshop

    def of_round(self, contenders: Sequence[Contender], size: Size) -> float:
        """Of training and measuring them on dev."""
        return self._seconds((one, size, "dev") for one in contenders)

    def of_tests(self, finalists: Sequence[Contender], size_of: Callable[[Contender], Size]) -> float:
        """Of searching the whole collection for the test queries, once they have been trained and measured on dev."""
        trained = [(one, size_of(one), "dev") for one in finalists]
        both = [*trained, *((one, size_of(one), "test") for one in finalists)]
        return max(0.0, self._seconds(both) - self._seconds(trained))

    def learn(self, untrained: Sequence[Contender], size: Size, measure: Callable[[], float]) -> None:
        """Measures contenders that need no training on dev, and remembers by how much the estimate of it was off.

        Args:
            measure: does it, and tells the seconds.
        """
        plan = self._plan((one, size, "dev") for one in untrained)
        taken, expected = measure(), 3600 * plan.total_hours
        if taken > NOTICEABLE and expected > 0:
            self.per_utilisation = taken / expected / plan.shape.device.utilisation

    def _seconds(self, wanted: SizedContenders) -> float:
        plan = self._plan(wanted)
        trainings = sum(plan.hours(charge) for charge in plan.charges if charge.training is not None)
        pace = 1.0 if self.per_utilisation is None else self.per_utilisation * plan.shape.device.utilisation
        return 3600 * (trainings + pace * (plan.total_hours - trainings))

    def _plan(self, wanted: SizedContenders) -> Estimate:
        cells = [cell for one in wanted for cell in self._cells_of(*one)]
        lanes = self._workshop.lanes
        return estimate(evaluations_of(cells), self._workshop.storage, workers=lanes, side_by_side=lanes > 1)
