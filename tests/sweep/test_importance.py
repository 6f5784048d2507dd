"""Importance on studies whose answer is known."""

import optuna
import pytest

from midmask.sweep.importance import importance
from midmask.sweep.space import Space
from midmask.sweep.study import open_study, sampler, suggest

PARAMETERS = {
    "a.strong": {"low": 0.0, "high": 1.0},
    "a.idle": {"low": 0.0, "high": 1.0},
    "a.kind": {"values": ["plain", "deep"]},
    "a.layers": {"values": [1, 2, 3], "when": {"a.kind": "deep"}},
    "a.fixed": {"values": [7]},
}


def study_of(space: Space, value, trials: int, *, rungs: int = 3) -> optuna.Study:
    """Random points with a value of theirs; every third one is pruned at its first rung, with a value that lies."""
    study = open_study(optuna.storages.InMemoryStorage(), "s", space)
    study.sampler = sampler(space, seed=0)
    for number in range(trials):
        trial = study.ask()
        point = suggest(space, trial)
        if rungs > 1 and number % 3 == 2:
            study.tell(trial, 100.0 * point["a.idle"])
            continue
        for rung in range(1, rungs):
            trial.report(0.0, rung)
        study.tell(trial, value(point))
    return study


def test_the_parameter_that_decides_is_told_from_those_that_do_not_and_pruned_trials_do_not_count() -> None:
    space = Space(name="s", recipe="none", search="random", parameters=PARAMETERS)
    found = importance(study_of(space, lambda point: -abs(point["a.strong"] - 0.3), 60), space)
    assert found is not None and found.trials == 40
    assert next(iter(found.shares)) == "a.strong" and found.shares["a.strong"] > 0.6
    assert set(found.shares) == {"a.strong", "a.idle", "a.kind", "a.layers"}
    assert sum(found.shares.values()) == pytest.approx(1)


def test_a_parameter_that_only_some_points_have_can_decide() -> None:
    space = Space(name="s", recipe="none", search="random", parameters=PARAMETERS)
    found = importance(study_of(space, lambda point: float(point.get("a.layers", 0) == 3), 90), space)
    assert found is not None
    assert set(list(found.shares)[:2]) == {"a.layers", "a.kind"}


def test_too_few_or_equal_trials_tell_nothing() -> None:
    space = Space(name="s", recipe="none", search="random", parameters=PARAMETERS)
    assert importance(study_of(space, lambda point: point["a.strong"], 12), space) is None
    assert importance(study_of(space, lambda point: 0.5, 60), space) is None
