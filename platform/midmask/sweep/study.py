"""A sweep's Optuna study: the points that were tried, their values, and which point comes next.

The study is the truth of a sweep: it has its own storage and a fixed name, and outlives every process. Ray Tune's own
state can be lost in a crash (an empty pickle), so nothing is restored from it. A sweep that is submitted again asks the
study which points are done, gives back the ones that a killed process held, and runs the rest.
"""

from dataclasses import dataclass

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import BaseTrial, TrialState

from midmask.sweep.space import Distribution, ParameterPoint, Space, complete, grid
from midmask.sweep.sweep_file import ParameterValue

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Outcome:
    """One finished trial of a study."""

    parameters: ParameterPoint
    measures: dict[int, float]  # number of a rung, from 1 -> the measure there
    complete: bool  # whether it ran to the end
    values: tuple[float, ...] = ()  # all objectives at the end; empty for a pruned trial

    @property
    def last(self) -> float:
        return self.measures[max(self.measures)]


def suggest(space: Space, trial: BaseTrial) -> ParameterPoint:
    """The next point, parameter by parameter, as define-by-run samplers want it: what its conditions exclude is never
    asked for. A listed value for a grid or where there is no range, else one from the range.
    """

    def choose(path: str, distribution: Distribution) -> ParameterValue:
        low, high = distribution.low, distribution.high
        if space.search == "grid" or low is None or high is None:
            value: ParameterValue = trial.suggest_categorical(path, distribution.values)
            return value
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(path, low, high, log=distribution.log)
        return trial.suggest_float(path, low, high, log=distribution.log)

    return complete(space, choose)


def sampler(space: Space, seed: int) -> BaseSampler:
    """Every option that Optuna 5 has changed the default of is given, so that a study means the same in any version.

    tpe: multivariate; a parameter that only some points have is drawn from its own trials. With a cost it is MOTPE
    (Ozaki et al. 2022).
    """
    if space.search == "tpe":
        return TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=max(4, space.trials // 3))
    return RandomSampler(seed=seed)


def open_study(storage: optuna.storages.BaseStorage, name: str, space: Space) -> optuna.Study:
    """The study of that name; made if there is none."""
    directions = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE][: len(space.objectives)]
    return optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=True)


def outcomes(study: optuna.Study, space: Space) -> list[Outcome]:
    """The finished trials, in the order in which they were asked."""
    last = len(space.shares)
    finished = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        measures = dict(trial.intermediate_values)
        if len(measures) < last:  # Ray hands over the result at which a scheduler ends a trial as its value alone
            measures[len(measures) + 1] = trial.values[0]
        is_complete = last in measures
        finished.append(Outcome(trial.params, measures, is_complete, tuple(trial.values) if is_complete else ()))
    return finished


@dataclass(frozen=True)
class Remaining:
    """What is still to run: points to hand to the searcher first, and the number of trials in all."""

    points: list[ParameterPoint]
    count: int


def remaining(study: optuna.Study, space: Space) -> Remaining:
    """What is still to run of a sweep. To be asked once in a process: it closes what an earlier process held.

    Trials that a killed process left running, and points that it had not begun, are marked failed, and their points are
    handed out again in the order in which they were asked: pruning depends on it. Steps go on from the artifacts and
    checkpoints that they have written.
    """
    held = study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
    for trial in held:
        study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)  # `tell` refuses a waiting trial
    finished = [outcome.parameters for outcome in outcomes(study, space)]
    if space.search == "grid":
        again = [point for point in grid(space) if point not in finished]
        return Remaining(again, len(again))
    count = max(0, space.trials - len(finished))
    # A killed trial may lack parameters that it was to have.
    points = [{**trial.system_attrs.get("fixed_params", {}), **trial.params} for trial in held]
    return Remaining(points[:count], count)
