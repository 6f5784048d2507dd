"""The trials of a sweep: Ray Tune runs them, Optuna chooses them, a scheduler ends the poor ones at rungs."""

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import optuna
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from midmask.artifact import Place
from midmask.cluster.interrupt import run_interruptibly
from midmask.cluster.resources import Resources
from midmask.cluster.study import Outcome, Remaining, outcomes, sampler, suggest
from midmask.cluster.trial import Context, run_trial
from midmask.errors import UserError
from midmask.recipes.points import Point
from midmask.recipes.space import Space

log = logging.getLogger(__name__)

RESTARTS = 2
"""Times that a trial is started again after its process died (or it failed): it goes on from its checkpoints."""


def search(context: Context, study: optuna.Study, left: Remaining, use: Resources, seed: int) -> list[Outcome]:
    """Runs what is left of a study, and returns all its finished trials.

    A trial that fails is reported and left out; the sweep goes on. Nothing is restored from Ray Tune's own files.
    """
    space = context.space
    if left.count:
        names, modes = _objectives(space)
        searcher = OptunaSearch(
            partial(suggest, space),
            metric=names if space.has_several_objectives else names[0],
            mode=modes if space.has_several_objectives else modes[0],
            points_to_evaluate=left.points,
            sampler=sampler(space, seed + len(study.trials)),  # resumed: not the first points over again
            study_name=study.study_name,
            storage=study._storage,
        )
        before = outcomes(study, space)
        run_interruptibly(_tuner(context, searcher, left.count, use, study.study_name, before).fit)
        Place(_tune_folder(context.storage)).delete()
    return outcomes(study, space)


def _objectives(space: Space) -> tuple[list[str], list[str]]:
    """Names under which trials report the objectives, and the way that each is optimised."""
    return [f"objective{place}" for place in range(len(space.targets))], [one.mode for one in space.targets]


class _Earlier(NamedTuple):
    """What the scheduler asks of a trial."""

    trial_id: str


def scheduler(space: Space, before: Sequence[Outcome]) -> TrialScheduler:
    """ASHA on the retrieval measure of the probes; nothing is pruned of several objectives, for which it has no order,
    or where the space says so.

    Args:
        before: trials that an earlier process has finished. Their measures count at every rung, so that a sweep that
            was killed prunes as one that was not.
    """
    if len(space.shares) == 1 or not space.rungs.prune:
        return FIFOScheduler()
    asha = AsyncHyperBandScheduler(
        time_attr="rung",
        metric="objective0",
        mode=space.targets[0].mode,
        max_t=len(space.shares),
        grace_period=1,
        reduction_factor=space.rungs.reduction,
    )
    sign = 1 if space.targets[0].mode == "max" else -1
    (bracket,) = asha._brackets
    for number, outcome in enumerate(before):
        for rung, measure in sorted(outcome.measures.items()):
            bracket.on_result(_Earlier(f"before-{number}"), rung, sign * measure)
    return asha


def _tuner(
    context: Context, searcher: OptunaSearch, count: int, use: Resources, name: str, before: Sequence[Outcome]
) -> tune.Tuner:
    def trainable(parameters: Point) -> None:
        run_trial(parameters, context, tune.report)

    own = {"CPU": use.cpus, "GPU": use.gpus} if use.workers == 1 else {"memory": 1}  # a byte: Tune refuses nothing
    return tune.Tuner(
        tune.with_resources(trainable, tune.PlacementGroupFactory([own])),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=scheduler(context.space, before),
            num_samples=count,
            max_concurrent_trials=use.side_by_side,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{name}-{int(time.time())}",
            storage_path=_tune_folder(context.storage),
            failure_config=tune.FailureConfig(max_failures=RESTARTS),
            verbose=0,
        ),
    )


def _tune_folder(storage: Place) -> str:
    """Tune wants a folder of its own; it holds nothing that is needed again."""
    return str(storage / "tune")


def best(found: list[Outcome], space: Space) -> Outcome:
    """The best of the trials that ran to the end, by the first objective.

    Raises:
        UserError: if none did.
    """
    complete = [outcome for outcome in found if outcome.complete]
    if not complete:
        raise UserError(f"sweep {space.name}: no trial ran to the end; the log above says why each one failed")
    sign = 1 if space.targets[0].mode == "max" else -1
    return max(complete, key=lambda outcome: sign * outcome.last)
