"""Runs trials side by side with Ray Tune, at points that an Optuna study suggests; ASHA ends bad ones early."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from midmask.backend.cluster import Resources
from midmask.store.place import Place

RESTARTS = 2
"""Times that a trial is started again after its process died (or it failed): it goes on from its checkpoints."""

Report = Callable[[dict[str, float]], None]

EarlyEnd = Literal["pruned", "failed"]
TellEnd = Callable[[dict[str, Any], EarlyEnd], None]
"""Gets the point of a trial that ends before its last rung, and why."""


def objective(number: int) -> str:
    """The key under which a trial reports the objective with this number, from 0."""
    return f"objective{number}"


@dataclass(frozen=True)
class Halving:
    """Asynchronous successive halving (ASHA, Li et al. 2020) on the first objective, which is to be large.

    Args:
        rungs: how many there are; a trial reports its number, from 1, as `rung`.
        reduction: one of so many trials goes on from a rung.
        before: what trials of an earlier process have measured, by rung. It counts, so that a search that was killed
            prunes as one that was not.
    """

    rungs: int
    reduction: float
    before: Sequence[Mapping[int, float]] = ()


class _Earlier(NamedTuple):
    """The part of a trial that the scheduler uses."""

    trial_id: str


def scheduler(halving: Halving | None) -> TrialScheduler:
    """None: every trial runs to its end."""
    if halving is None:
        return FIFOScheduler()
    asha = AsyncHyperBandScheduler(
        time_attr="rung",
        metric=objective(0),
        mode="max",
        max_t=halving.rungs,
        grace_period=1,
        reduction_factor=halving.reduction,
    )
    for number, measures in enumerate(halving.before):
        earlier = _Earlier(f"before-{number}")
        for rung, measure in sorted(measures.items()):
            asha.on_trial_add(None, earlier)
            asha.on_trial_complete(None, earlier, {"rung": rung, objective(0): measure})
    return asha


@dataclass(frozen=True)
class TrialSearch:
    """The search of an Optuna study."""

    study: str
    storage: Any  # as Optuna takes it
    sampler: Any  # as Optuna takes it
    suggest: Callable[[Any], dict[str, Any]]  # a trial of Optuna -> a point
    has_cost: bool  # whether a second objective is to be small; the first is to be large
    points: Sequence[dict[str, Any]]  # to be tried first


class EarlyEnds(tune.Callback):  # type: ignore[misc]  # Ray has no types
    """Reports each trial that a scheduler has ended, or that has failed for good, at once."""

    def __init__(self, rungs: int, tell: TellEnd) -> None:
        self._rungs, self._tell = rungs, tell

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.last_result.get("rung", self._rungs) < self._rungs:
            self._tell(trial.config, "pruned")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell(trial.config, "failed")


def run_trials(
    trial: Callable[[dict[str, Any], Report], None],
    search: TrialSearch,
    count: int,
    use: Resources,
    halving: Halving | None,
    storage: Place,
    tell: TellEnd,
) -> None:
    """Runs `trial(point, report)` at `count` points. A trial that fails is left out and the search goes on.

    Args:
        tell: called in this process, from Tune's thread.
        storage: Tune gets a folder in it for this call; nothing is ever restored from Tune's own files.
    """
    folder = storage / "tune"
    searcher = OptunaSearch(
        search.suggest,
        metric=[objective(0), objective(1)] if search.has_cost else objective(0),
        mode=["max", "min"] if search.has_cost else "max",
        points_to_evaluate=list(search.points),
        sampler=search.sampler,
        study_name=search.study,
        storage=search.storage,
    )

    def trainable(point: dict[str, Any]) -> None:
        trial(point, tune.report)

    bundle = (
        dict(zip(("CPU", "GPU"), use.held, strict=True)) if any(use.held) else {"memory": 1}
    )  # a byte: Tune refuses none
    tuner = tune.Tuner(
        tune.with_resources(trainable, tune.PlacementGroupFactory([bundle])),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=scheduler(halving),
            num_samples=count,
            max_concurrent_trials=use.side_by_side,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{search.study}-{int(time.time())}",
            storage_path=str(folder),
            failure_config=tune.FailureConfig(max_failures=RESTARTS),
            verbose=0,
            callbacks=[EarlyEnds(halving.rungs if halving else 1, tell)],
        ),
    )
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # Tune's returns half a sweep as if it had ended
    tuner.fit()
    folder.delete()
