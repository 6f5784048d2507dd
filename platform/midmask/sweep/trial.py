"""The trials of a sweep: Ray Tune runs them, Optuna chooses them, a scheduler ends the poor ones at rungs.

A trial (pre-train → fine-tune → evaluate, probed at rungs) is a plain function. It reports between trainings alone: a
Ray Train worker group inside a Tune trial hangs when a scheduler stops the trial while the group lives (ray issue
54305).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import optuna

from midmask.backend.channel import Channel
from midmask.backend.cluster import Resources
from midmask.backend.executor import makers_of
from midmask.backend.tune import EarlyEnd, Halving, Report, TrialSearch, objective, run_trials
from midmask.core.config import fingerprint
from midmask.experiment.changes import apply_changes
from midmask.experiment.events import Failed, StepEvent
from midmask.experiment.run import Runner
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.store.place import Place
from midmask.sweep.plan import Measured, trial_rungs
from midmask.sweep.space import ParameterPoint, Space
from midmask.sweep.study import Outcome, Remaining, outcomes, sampler, suggest


@dataclass(frozen=True)
class TrialContext:
    """The inputs that all trials of a sweep share, as picklable plain data."""

    recipe: Recipe
    survey: Survey
    space: Space
    storage: Place
    channel: Channel
    use: Resources


@dataclass(frozen=True)
class TrialStarted:
    """The first event of a trial; one whose process died starts again."""

    point: ParameterPoint


@dataclass(frozen=True)
class RungMeasured:
    """A rung was measured; the last one is the trial's final evaluation."""

    number: int  # from 1
    share: float  # of the middle training
    seconds: float
    measured: Measured


@dataclass(frozen=True)
class EndedEarly:
    """The trial ends before its last rung."""

    how: EarlyEnd


@dataclass(frozen=True)
class TrialEvent:
    """What happens in a trial, of which the driver alone writes to MLflow and to the terminal. Failures of steps are
    not among it: they reach the driver through Ray Tune, with their tracebacks.
    """

    trial: str  # fingerprint of its point
    event: StepEvent | TrialStarted | RungMeasured | EndedEarly


def run_trial(context: TrialContext, parameters: ParameterPoint, report: Report) -> None:
    """Runs one point of the space. `report` passes measurements to the scheduler, which may end the trial at a rung:
    `rung`, and `objective0`, `objective1` where there is a cost.
    """
    trial = fingerprint(parameters)
    recipe, space = apply_changes(context.recipe, parameters), context.space
    rungs = trial_rungs(recipe, space, context.survey)

    def tell(event: StepEvent | TrialStarted | RungMeasured) -> None:
        if not isinstance(event, Failed):
            context.channel.push(TrialEvent(trial, event))

    tell(TrialStarted(parameters))
    runner = Runner(context.storage, makers_of(context.use), tell)
    for number, rung in enumerate(rungs, start=1):
        if rung.pretrained is not None:
            runner.compute(rung.pretrained)
        trained = time.perf_counter()
        measured = Measured.by(rung.evaluation, runner.compute(rung.evaluation), context.storage)
        tell(RungMeasured(number, rung.share, time.perf_counter() - trained, measured))
        objectives = measured.of(space.objectives if number == len(rungs) else space.objectives[:1])
        report({"rung": number, **{objective(place): value for place, value in enumerate(objectives)}})


def search(context: TrialContext, study: optuna.Study, left: Remaining, seed: int) -> list[Outcome]:
    """Runs what is left of a study, and returns all its finished trials.

    A trial that fails is reported and left out; the sweep goes on.
    """
    space = context.space
    if left.count:
        searcher = TrialSearch(
            study=study.study_name,
            storage=study._storage,
            sampler=sampler(space, seed + len(study.trials)),  # resumed: not the first points over again
            suggest=partial(suggest, space),
            has_cost=space.cost is not None,
            points=left.points,
        )
        halving = pruning(space, outcomes(study, space))

        def tell(point: ParameterPoint, how: EarlyEnd) -> None:
            context.channel.push(TrialEvent(fingerprint(point), EndedEarly(how)))

        run_trials(partial(run_trial, context), searcher, left.count, context.use, halving, context.storage, tell)
    return outcomes(study, space)


def pruning(space: Space, before: Sequence[Outcome]) -> Halving | None:
    """ASHA on the retrieval measure of the probes; nothing is pruned without probes.

    Args:
        before: trials that an earlier process has finished.
    """
    if len(space.shares) == 1:
        return None
    measures = [outcome.measures for outcome in before]
    return Halving(len(space.shares), space.rungs.reduction, measures)
