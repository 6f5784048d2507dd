"""The study as the truth of a sweep: what a killed process leaves behind is handed out again, once, no more."""

import optuna
import pytest
from optuna.trial import TrialState

from midmask.cluster.study import Remaining, open_study, outcomes, remaining, sampler, suggest
from midmask.recipes.space import Space

RATIOS = {"a.x": {"values": (0.1, 0.2, 0.3), "low": 0.05, "high": 0.9}, "a.y": {"values": (0.5, 0.7)}}


def space(**fields):
    return Space(name="s", recipe="retromae", parameters=RATIOS, trials=6, **fields)


@pytest.fixture
def storage(tmp_path):
    return optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'study.db'}")


def finish(study, of, value, rungs=3):
    trial = study.ask()
    suggest(of, trial)
    for number in range(1, rungs):
        trial.report(value, number)
    study.tell(trial, value)  # as Ray does: the last result is the value, and not reported beside it
    return trial.params


def test_a_fresh_grid_is_handed_out_whole_and_a_finished_one_not_at_all(storage):
    grid = space()
    study = open_study(storage, "s", grid)
    left = remaining(study, grid)
    points = left.points
    assert left.count == len(points) == 6
    for point in points:
        study.enqueue_trial(point)
    done = [finish(study, grid, 0.5) for _ in points]
    assert sorted(map(str, done)) == sorted(map(str, points))
    assert remaining(open_study(storage, "s", grid), grid) == Remaining([], 0)


def test_what_a_killed_process_held_comes_back_exactly_once(storage):
    grid = space()
    study = open_study(storage, "s", grid)
    points = remaining(study, grid).points
    for point in points:
        study.enqueue_trial(point)
    done = [finish(study, grid, 0.5), finish(study, grid, 0.4, rungs=1)]
    held = suggest(grid, study.ask())  # and then the process is killed
    left = remaining(open_study(storage, "s", grid), grid)
    assert left == Remaining([held], 4)  # one handed out again, three still waiting in the study
    study = open_study(storage, "s", grid)
    for point in left.points:
        study.enqueue_trial(point)
    rest = [finish(study, grid, 0.3) for _ in range(left.count)]
    assert sorted(map(str, done + rest)) == sorted(map(str, points))
    assert remaining(study, grid) == Remaining([], 0)


def test_a_second_kill_before_anything_ran_changes_nothing(storage):
    grid = space()
    study = open_study(storage, "s", grid)
    for point in remaining(study, grid).points:
        study.enqueue_trial(point)
    assert remaining(open_study(storage, "s", grid), grid) == Remaining([], 6)
    assert remaining(open_study(storage, "s", grid), grid) == Remaining([], 6)


def test_a_sampled_sweep_counts_finished_trials_against_its_budget(storage):
    tpe = space(search="tpe")
    study = open_study(storage, "s", tpe)
    assert remaining(study, tpe) == Remaining([], 6)
    finish(study, tpe, 0.5)
    held = suggest(tpe, study.ask())
    assert remaining(open_study(storage, "s", tpe), tpe) == Remaining([held], 5)
    failed = study.get_trials(states=(TrialState.FAIL,))
    assert [trial.params for trial in failed] == [held]


def test_only_trials_that_reached_the_last_rung_are_complete(storage):
    grid = space()
    study = open_study(storage, "s", grid)
    finish(study, grid, 0.9, rungs=1)
    finish(study, grid, 0.4, rungs=3)
    found = outcomes(study, grid)
    assert [(outcome.complete, outcome.last) for outcome in found] == [(False, 0.9), (True, 0.4)]


def test_the_same_seed_asks_the_same_points(tmp_path):
    tpe = space(search="tpe")
    asked = []
    for run in range(2):
        storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / f'{run}.db'}")
        open_study(storage, "s", tpe)
        study = optuna.load_study(study_name="s", storage=storage, sampler=sampler(tpe, seed=3))
        asked.append([finish(study, tpe, value) for value in (0.1, 0.3, 0.2, 0.4, 0.35, 0.1)])
    assert asked[0] == asked[1]
