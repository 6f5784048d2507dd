"""What is measured of a trial: a probe at each rung, and the whole protocol on dev at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midmask.artifact import Place
from midmask.errors import unknown
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.costs import costs_of
from midmask.experiment.plan import Step, plan
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey
from midmask.sweep.space import Space, Target


@dataclass(frozen=True)
class Measured:
    """What a trial's evaluations found. measures: mean over fine-tuning seeds; costs: those of the first seed, by the
    names of `Costs`, without what is not known.
    """

    measures: dict[str, float]
    costs: dict[str, float]

    def of(self, objectives: Sequence[Target]) -> tuple[float, ...]:
        """The values of objectives.

        Raises:
            UserError: for one that is neither a measure nor a cost of these evaluations.
        """
        known = {**self.measures, **self.costs}
        for one in objectives:
            if one.measure not in known:
                raise unknown(
                    "objective", one.measure, known, hint="These are the measures and costs of the evaluation."
                )
        return tuple(known[one.measure] for one in objectives)


def summarise(steps: Sequence[Step], results: Sequence[dict[str, Any]], storage: Place) -> Measured:
    """Means over the evaluations, which differ in the fine-tuning seed alone."""
    means = {name: float(np.mean([result["measures"][name] for result in results])) for name in results[0]["measures"]}
    costs = {name: float(value) for name, value in vars(costs_of(steps[0], storage)).items() if value is not None}
    return Measured(means, costs)


def final_evaluations(recipe: Recipe, space: Space, survey: Survey) -> list[Step]:
    """A trial's last measurement: the whole protocol on dev, once per seed."""
    repeated = [recipe.seeded(seed) for seed in space.trial_seeds] or [recipe]
    return [plan(one, survey).evaluation(dev_evaluation(one)) for one in repeated]


def probe(recipe: Recipe, share: float, space: Space, survey: Survey) -> Step:
    """A rung's measurement: a fixed, short first stage, then at most `max_queries` dev queries."""
    first = recipe.stages[0]
    stage = first.model_copy(update={"train": first.train.model_copy(update={"steps": space.rungs.steps})})
    config = dev_evaluation(recipe).model_copy(update={"max_queries": space.rungs.max_queries})
    return plan(recipe.model_copy(update={"stages": (stage,)}), survey, share=share).evaluation(config)


def dev_evaluation(recipe: Recipe) -> EvaluateConfig:
    """Selection looks at dev only."""
    return recipe.evaluation.model_copy(update={"split": "dev"})
