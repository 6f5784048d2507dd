"""One trial of a sweep: pre-train → fine-tune → evaluate in one process, probed at rungs.

A trial is a plain function with its own resources. A Ray Train worker group inside a Tune trial hangs when a
scheduler stops it (ray issue 54305), so trials run the Ray-free steps.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from midmask.artifact import Artifact, Place
from midmask.cluster.channel import Channel
from midmask.evaluate.retriever import EvaluateConfig
from midmask.identity import fingerprint, override
from midmask.recipes import recipe_from
from midmask.recipes.plan import Contents, Step, plan, rungs
from midmask.recipes.run import Runner
from midmask.recipes.schema import Recipe
from midmask.recipes.space import Space
from midmask.steps import LOCAL


@dataclass(frozen=True)
class Context:
    """What every trial of a sweep shares, as plain data that travels to any node."""

    recipe: dict[str, Any]
    contents: Contents
    space: Space
    storage: Place
    channel: Channel

    def recipe_at(self, parameters: dict[str, Any]) -> Recipe:
        return override(recipe_from(self.recipe), parameters)


class ChannelObserver:
    """Tells the driver what a trial does; the driver alone writes to MLflow and to the terminal."""

    def __init__(self, channel: Channel, source: str) -> None:
        self._channel = channel
        self._source = source

    def begin(self, step: Step) -> None:
        self._channel.push(self._source, [{"event": "begin", "step": step.name}])

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        row = {"event": "log", "step": step.name, "at": at, "of": step.optimiser_steps, "values": values}
        self._channel.push(self._source, [row])

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        self._channel.push(self._source, [{"event": "end", "step": step.name, "cached": cached}])


def trial_name(parameters: dict[str, Any]) -> str:
    """Short and readable: `encoder_mask_ratio=0.3 decoder_mask_ratio=0.5`."""
    return " ".join(f"{path.rsplit('.', 1)[-1]}={_short(value)}" for path, value in parameters.items())


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def run_trial(parameters: dict[str, Any], context: Context, report: Callable[[dict[str, float]], None]) -> None:
    """Runs one point of the space. `report` hands a rung's measure to the scheduler, which may end the trial there."""
    source = fingerprint(parameters)
    context.channel.push(source, [{"event": "start", "parameters": parameters}])
    runner = Runner(context.storage, LOCAL, ChannelObserver(context.channel, source))
    recipe = context.recipe_at(parameters)
    shares = (*context.space.rungs.shares, 1.0)
    for number, (share, rung) in enumerate(zip(shares, rungs(recipe, shares, context.contents), strict=True), start=1):
        if rung.pretrained is not None:
            runner.run(rung.pretrained)
        trained = time.perf_counter()
        last = number == len(shares)
        step = (
            rung.evaluation(dev_evaluation(recipe)) if last else probe(recipe, share, context.space, context.contents)
        )
        result = runner.run(step).result
        measure = float(result["measures"][context.space.measure])
        seconds = time.perf_counter() - trained
        row = {"event": "rung", "number": number, "share": share, "measure": measure, "seconds": seconds}
        row |= {"measures": result["measures"], "corpus": result["corpus"]}
        context.channel.push(source, [row])
        report({"rung": number, "measure": measure})


def probe(recipe: Recipe, share: float, space: Space, contents: Contents) -> Step:
    """A rung's measurement: a fixed, short first stage, then at most `max_queries` dev queries."""
    first = recipe.stages[0]
    stage = first.model_copy(update={"train": first.train.model_copy(update={"steps": space.rungs.steps})})
    config = dev_evaluation(recipe).model_copy(update={"max_queries": space.rungs.max_queries})
    return plan(recipe.model_copy(update={"stages": (stage,)}), contents, share=share).evaluation(config)


def dev_evaluation(recipe: Recipe) -> EvaluateConfig:
    """Selection looks at dev only."""
    return recipe.evaluation.model_copy(update={"split": "dev"})
