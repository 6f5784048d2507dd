"""The Optuna study is the truth of a sweep: it has its own storage and a fixed name, and outlives every process.

Ray Tune's own state can be lost in a crash (an empty pickle), so nothing is restored from it. A sweep that is
submitted again asks the study which points are done, gives back the ones that a killed process held, and runs the
rest.
"""

from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from midmask.recipes.space import Distribution, Space, grid

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Outcome:
    """One finished trial: its parameters, the measure at each rung (by number from 1), whether it ran to the end."""

    parameters: dict[str, Any]
    measures: dict[int, float]
    complete: bool

    @property
    def last(self) -> float:
        return self.measures[max(self.measures)]


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's form of the space: the listed values for a grid or where there is no range, else the range."""

    def of(distribution: Distribution) -> BaseDistribution:
        if space.search == "grid" or distribution.low is None or distribution.high is None:
            return CategoricalDistribution(distribution.values)
        return FloatDistribution(distribution.low, distribution.high, log=distribution.log)

    return {path: of(distribution) for path, distribution in space.parameters.items()}


def sampler(space: Space, seed: int) -> BaseSampler:
    """Every option that Optuna 5 has changed the default of is given, so that a study means the same in any version."""
    if space.search == "tpe":
        return TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=max(4, space.trials // 3))
    return RandomSampler(seed=seed)


def open_study(storage: optuna.storages.BaseStorage, name: str, space: Space) -> optuna.Study:
    """The study of that name; made if there is none."""
    direction = StudyDirection.MAXIMIZE if space.mode == "max" else StudyDirection.MINIMIZE
    return optuna.create_study(storage=storage, study_name=name, direction=direction, load_if_exists=True)


def outcomes(study: optuna.Study, space: Space) -> list[Outcome]:
    """The finished trials, in the order in which they were asked."""
    last = len(space.rungs.shares) + 1
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    found = []
    for trial in done:
        measures = dict(trial.intermediate_values)
        if trial.value is not None:  # Ray reports the result that ends a trial as its value alone
            measures[len(measures) + 1] = trial.value
        found.append(Outcome(trial.params, measures, last in measures))
    return found


@dataclass(frozen=True)
class Remaining:
    """What is still to run: points to hand to the searcher first, and the number of trials in all."""

    points: list[dict[str, Any]]
    count: int


def remaining(study: optuna.Study, space: Space) -> Remaining:
    """What is still to run of a sweep. To be asked once in a process: it closes what an earlier process held.

    Trials that a killed process left running are marked failed, and their points are handed out again; their steps go
    on from the artifacts and checkpoints that they have written.
    """
    interrupted = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    for trial in interrupted:
        study.tell(trial.number, state=TrialState.FAIL)
    waiting = [_point(trial) for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING,))]
    finished = [outcome.parameters for outcome in outcomes(study, space)]
    if space.search == "grid":
        again = [point for point in grid(space) if point not in finished and point not in waiting]
        return Remaining(again, len(again) + len(waiting))
    again = [point for trial in interrupted if (point := _point(trial)) not in waiting]
    return Remaining(again, max(0, space.trials - len(finished)))


def _point(trial: FrozenTrial) -> dict[str, Any]:
    return dict(trial.params or trial.system_attrs.get("fixed_params", {}))
