"""Who takes part in the final comparison of a sweep: systems × fine-tuning seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from midmask.experiment.plan import Plan, Step, plan
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey

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
