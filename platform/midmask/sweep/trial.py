"""One trial of a sweep: pre-train → fine-tune → evaluate, probed at rungs.

A trial is a plain function. It reports between trainings alone: a Ray Train worker group inside a Tune trial hangs when
a scheduler stops the trial while the group lives (ray issue 54305).
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

from midmask.artifact import Artifact, Place
from midmask.backend.channel import Channel
from midmask.backend.makers import makers_of
from midmask.backend.resources import Resources
from midmask.backend.tune import Report, objective
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.plan import Step, rungs
from midmask.experiment.run import Runner, Silent
from midmask.experiment.schema import Recipe, recipe_from
from midmask.experiment.survey import Survey
from midmask.identity import fingerprint
from midmask.sweep.measurement import final_evaluations, probe, summarise
from midmask.sweep.points import ParameterPoint
from midmask.sweep.space import Space


@dataclass(frozen=True)
class TrialContext:
    """What every trial of a sweep shares, as plain data that travels to any node."""

    recipe: dict[str, Any]
    survey: Survey
    space: Space
    storage: Place
    channel: Channel
    use: Resources

    def recipe_at(self, parameters: ParameterPoint) -> Recipe:
        return apply_changes(recipe_from(self.recipe), parameters)


class ChannelObserver(Silent):
    """Reports a trial's steps to the driver, which alone writes to MLflow and to the terminal; failures reach it
    through Ray Tune, with their tracebacks.
    """

    def __init__(self, channel: Channel, source: str) -> None:
        self._channel = channel
        self._source = source

    def begin(self, step: Step) -> None:
        self._channel.push(self._source, [{"event": "begin", "step": step.name, "fingerprint": step.fingerprint}])

    def log(self, step: Step, at: int, values: dict[str, float]) -> None:
        row = {"event": "log", "step": step.name, "fingerprint": step.fingerprint, "at": at}
        self._channel.push(self._source, [row | {"of": step.optimiser_steps, "values": values}])

    def end(self, step: Step, artifact: Artifact, *, cached: bool) -> None:
        row = {"event": "end", "step": step.name, "fingerprint": step.fingerprint, "cached": cached}
        self._channel.push(self._source, [row])


def run_trial(context: TrialContext, parameters: ParameterPoint, report: Report) -> None:
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
        steps = (
            final_evaluations(recipe, space, context.survey) if last else [probe(recipe, share, space, context.survey)]
        )
        results = [runner.run(step).result for step in steps]
        found = summarise(steps, results, context.storage)
        seconds = time.perf_counter() - trained
        row = {"event": "rung", "number": number, "share": share, "seconds": seconds}
        row |= {name: results[0][name] for name in ("corpus", "queries")}
        context.channel.push(source, [row | asdict(found)])
        objectives = found.of(space.targets if last else space.targets[:1])
        report({"rung": number, **{objective(place): value for place, value in enumerate(objectives)}})
