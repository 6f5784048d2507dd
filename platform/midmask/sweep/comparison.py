"""The final comparison: systems × fine-tuning seeds under one protocol, side by side on the cluster."""

from collections.abc import Sequence

from midmask.artifact import Place, load
from midmask.backend.executor import execute
from midmask.backend.resources import Resources
from midmask.experiment.eta import StepTimes
from midmask.experiment.graph import Graph
from midmask.experiment.plan import Step
from midmask.experiment.run import Silent
from midmask.progress import SweepProgress
from midmask.sweep.entrants import Entrant, ScoredEntrant


def compare(
    entrants: Sequence[Entrant], storage: Place, use: Resources, progress: SweepProgress
) -> list[ScoredEntrant]:
    """Every entrant on every split. A step that several entrants need is computed once.

    Raises:
        RayError: of the first step that fails.
    """
    targets = [step for one in entrants for step in one.evaluations.values()]
    graph = Graph.left_in(storage, targets, StepTimes().weight)
    execute(graph, storage, use, ComparisonProgress(entrants, progress))
    return [
        ScoredEntrant(one, {split: load(step.place(storage)) for split, step in one.evaluations.items()})
        for one in entrants
    ]


class ComparisonProgress(Silent):
    """The observer of a comparison: a line now and then."""

    def __init__(self, entrants: Sequence[Entrant], progress: SweepProgress) -> None:
        self._progress = progress
        self._owner: dict[str, str] = {}
        for one in entrants:
            for evaluation in one.evaluations.values():
                for step in evaluation.upstream():
                    self._owner.setdefault(step.fingerprint, f"{one.label}, seed {one.seed}")

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        owner, loss = self._owner[step.fingerprint], values.get("train/loss")
        self._progress.step(owner, step.name, at, step.optimiser_steps, loss)
