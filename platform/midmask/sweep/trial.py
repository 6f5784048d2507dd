"""One trial of a sweep: pre-train → fine-tune → evaluate, probed at rungs.

A trial is a plain function. It reports between trainings alone: a Ray Train worker group inside a Tune trial hangs when
a scheduler stops the trial while the group lives (ray issue 54305).
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from midmask.artifact import Artifact, Place
from midmask.backend.channel import Channel
from midmask.backend.makers import makers_of
from midmask.backend.resources import Resources
from midmask.backend.tune import Report, objective
from midmask.errors import unknown
from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.costs import costs_of
from midmask.experiment.plan import Step, plan, rungs
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe, recipe_from
from midmask.experiment.survey import Survey
from midmask.identity import fingerprint
from midmask.sweep.points import Point
from midmask.sweep.space import Objective, Space


@dataclass(frozen=True)
class Context:
    """What every trial of a sweep shares, as plain data that travels to any node."""

    recipe: dict[str, Any]
    survey: Survey
    space: Space
    storage: Place
    channel: Channel
    use: Resources

    def recipe_at(self, parameters: Point) -> Recipe:
        return apply_changes(recipe_from(self.recipe), parameters)


class ChannelObserver(Silent):
    """Reports a trial's steps to the driver, which alone writes to MLflow and to the terminal; failures reach it
    through Ray Tune, with their tracebacks.
    """

    def __init__(self, channel: Channel, source: str) -> None:
        self._channel = channel
        self._source = source

    def begin(self, step: Step) -> None:
        self._channel.push(self._source, [{"event": "begin", "step": step.name}])

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        row = {"event": "log", "step": step.name, "fingerprint": step.fingerprint, "at": at}
        self._channel.push(self._source, [row | {"of": step.optimiser_steps, "values": values}])

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        row = {"event": "end", "step": step.name, "fingerprint": step.fingerprint, "cached": cached}
        self._channel.push(self._source, [row])


def run_trial(context: Context, parameters: Point, report: Report) -> None:
    """Runs one point of the space. `report` hands what was measured to the scheduler, which may end the trial at a
    rung: `rung`, and `objective0`, `objective1`, … in the order of the space.
    """
    source = fingerprint(parameters)
    context.channel.push(source, [{"event": "start", "parameters": parameters}])
    runner = Runner(context.storage, makers_of(context.use), ChannelObserver(context.channel, source))
    recipe, space = context.recipe_at(parameters), context.space
    for number, rung in enumerate(rungs(recipe, space.shares, context.survey), start=1):
        if rung.pretrained is not None:
            runner.run(rung.pretrained)
        trained = time.perf_counter()
        share = space.shares[number - 1]
        last = number == len(space.shares)
        steps = finals(recipe, space, context.survey) if last else [probe(recipe, share, space, context.survey)]
        results = [runner.run(step).result for step in steps]
        found = measured(steps, results, context.storage)
        seconds = time.perf_counter() - trained
        row = {"event": "rung", "number": number, "share": share, "seconds": seconds}
        row |= {name: results[0][name] for name in ("corpus", "queries")}
        context.channel.push(source, [row | asdict(found)])
        objectives = found.of(space.targets if last else space.targets[:1])
        report({"rung": number, **{objective(place): value for place, value in enumerate(objectives)}})


@dataclass(frozen=True)
class Measured:
    """What a trial's evaluations found. measures: mean over fine-tuning seeds; costs: those of the first seed, by the
    names of `Costs`, without what is not known.
    """

    measures: dict[str, float]
    costs: dict[str, float]

    def of(self, objectives: Sequence[Objective]) -> tuple[float, ...]:
        """The values of objectives.

        Raises:
            UserError: for one that these evaluations do not tell.
        """
        known = {**self.measures, **self.costs}
        for one in objectives:
            if one.measure not in known:
                raise unknown("objective", one.measure, known, hint="These the evaluation tells.")
        return tuple(known[one.measure] for one in objectives)


def measured(steps: Sequence[Step], results: Sequence[dict[str, Any]], storage: Place) -> Measured:
    """Means over the evaluations, which differ in the fine-tuning seed alone."""
    means = {name: float(np.mean([result["measures"][name] for result in results])) for name in results[0]["measures"]}
    costs = {name: float(value) for name, value in vars(costs_of(steps[0], storage)).items() if value is not None}
    return Measured(means, costs)


def finals(recipe: Recipe, space: Space, survey: Survey) -> list[Step]:
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
