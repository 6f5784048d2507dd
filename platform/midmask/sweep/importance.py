"""Which parameter mattered: PED-ANOVA (Watanabe et al., IJCAI 2023) on a sweep's trials, as Optuna has it.

It asks how far the values of a parameter among the good trials differ from those among all. In Optuna 5 it takes
conditional parameters and several objectives (then good is near the front), and needs no further package; fANOVA takes
neither, and needs scikit-learn.
"""

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from midmask.leaderboard.sweep_result import SweepImportance
from midmask.sweep.space import Space

FEWEST = 10
"""Trials below which importance is not told: among the good ones should be five (Optuna's documentation)."""

GOOD = 5


def importance(study: optuna.Study, space: Space) -> SweepImportance | None:
    """The importance of the parameters that have a choice; none for too few trials, or where all trials are equal."""
    last = len(space.shares)
    ended = [
        trial
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if last == 1 or len(trial.intermediate_values) >= last - 1
    ]
    if len(ended) < FEWEST or len({tuple(trial.values) for trial in ended}) == 1:
        return None
    whole = optuna.create_study(directions=study.directions)
    whole.add_trials(ended)
    quantile = max(0.1, GOOD / len(ended))
    paths = [path for path, distribution in space.parameters.items() if not distribution.is_constant]
    met = [path for path in paths if any(path in trial.params for trial in ended)]
    found = get_param_importances(whole, evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile), params=met)
    shares = {path: float(share) for path, share in found.items()}
    return SweepImportance(shares=shares, trials=len(ended), quantile=quantile)
