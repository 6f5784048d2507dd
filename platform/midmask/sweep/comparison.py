"""The final comparison: systems × fine-tuning seeds under one protocol, side by side on the cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from midmask.artifact import Artifact, Place, load
from midmask.backend.executor import execute
from midmask.backend.resources import Resources
from midmask.experiment.eta import Pace
from midmask.experiment.graph import Graph
from midmask.experiment.plan import Plan, Step, plan
from midmask.experiment.run import Silent
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey
from midmask.progress import SweepProgress

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Entrant:
    """One system with one fine-tuning seed: a label for the table, its recipe, and its plan."""

    label: str
    seed: int
    recipe: Recipe
    plan: Plan

    @cached_property
    def evaluations(self) -> dict[str, Step]:
        """By split."""
        own = self.recipe.evaluation
        return {split: self.plan.evaluation(own.model_copy(update={"split": split})) for split in SPLITS}


def entrants_of(label: str, recipe: Recipe, seeds: Sequence[int], survey: Survey) -> list[Entrant]:
    """A system with each of the seeds."""
    recipes = {seed: recipe.seeded(seed) for seed in seeds}
    return [Entrant(label, seed, one, plan(one, survey)) for seed, one in recipes.items()]


@dataclass(frozen=True)
class Scored:
    """A system's evaluations of one seed, by split."""

    entrant: Entrant
    evaluations: dict[str, Artifact]


def compare(entrants: Sequence[Entrant], storage: Place, use: Resources, progress: SweepProgress) -> list[Scored]:
    """Every entrant on every split. A step that several entrants need is computed once.

    Raises:
        RayError: of the first step that fails.
    """
    targets = [step for one in entrants for step in one.evaluations.values()]
    graph = Graph.of(targets, lambda step: step.is_finished(storage), Pace().weight)
    execute(graph, storage, use, ComparisonProgress(entrants, progress))
    return [
        Scored(one, {split: load(step.place(storage)) for split, step in one.evaluations.items()}) for one in entrants
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
