"""The study as the truth of a sweep, and what a kill leaves behind."""

from typing import NamedTuple

import optuna
import pytest
from optuna.trial import TrialState
from ray.tune.schedulers import TrialScheduler

from midmask.backend.tune import scheduler
from midmask.sweep.space import Space
from midmask.sweep.study import Outcome, Remaining, open_study, outcomes, remaining, sampler, suggest
from midmask.sweep.trial import pruning

RATIOS = {"a.x": {"values": (0.1, 0.2, 0.3), "low": 0.05, "high": 0.9}, "a.y": {"values": (0.5, 0.7)}}


def space(**fields):
    return Space(name="s", recipe="retromae", parameters=RATIOS, trials=6, **fields)


@pytest.fixture
def storage(tmp_path):
    return optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'study.db'}")


DECODER = {
    "objective.decoding": {"values": ["enhanced", "basic"]},
    "objective.decoder_layers": {"values": [1, 2, 3], "when": {"objective.decoding": "basic"}},
    "objective.decoder_mask_ratio": {"low": 0.1, "high": 0.9},
    "deep.share": {"low": 4, "high": 64, "log": True, "when": {"objective.decoder_layers": [2, 3]}},
}
SIZE = "bytes_per_passage"
SEARCHES = [("random", 300, None), ("tpe", 90, None), ("tpe", 60, SIZE)]


def is_possible(point) -> bool:
    deep, basic = point.get("objective.decoder_layers", 1) > 1, point["objective.decoding"] == "basic"
    wanted = {"objective.decoding", "objective.decoder_mask_ratio"}
    wanted |= ({"objective.decoder_layers"} if basic else set()) | ({"deep.share"} if deep else set())
    share = point.get("deep.share", 4)
    return set(point) == wanted and 0.1 <= point["objective.decoder_mask_ratio"] <= 0.9 and 4 <= share <= 64


@pytest.mark.parametrize(("search", "draws", "cost"), SEARCHES)
def test_no_sampler_proposes_an_impossible_point(search, draws, cost):
    """Told values that pull the samplers towards deep decoders."""
    of = Space(name="s", recipe="retromae", parameters=DECODER, search=search, trials=draws, cost=cost)
    study = open_study(optuna.storages.InMemoryStorage(), "s", of)
    study.sampler = sampler(of, seed=1)
    points = []
    for _ in range(draws):
        trial = study.ask()
        points.append(suggest(of, trial))
        value = points[-1].get("objective.decoder_layers", 0) + points[-1].get("deep.share", 0) / 64
        study.tell(trial, [value, len(points[-1])] if cost else value)
    assert all(is_possible(point) for point in points)
    assert all(isinstance(point.get("deep.share", 4), int) for point in points)
    last = points[-draws // 3 :]
    has_learnt = sum("deep.share" in point for point in last) > len(last) / 2
    assert has_learnt or search == "random" or cost  # a front has shallow points too


def test_a_killed_conditional_grid_hands_out_each_point_once(storage):
    parameters = {**DECODER, "objective.decoder_mask_ratio": {"values": [0.5, 0.7]}}
    parameters.pop("deep.share")
    of = Space(name="s", recipe="retromae", parameters=parameters)
    study = open_study(storage, "s", of)
    points = remaining(study, of).points
    assert len(points) == 8
    for point in points:
        study.enqueue_trial(point)
    done = [finish(study, of, 0.5) for _ in range(3)]
    held = suggest(of, study.ask())  # and the process is killed
    half = study.ask()
    half.suggest_categorical("objective.decoding", ["enhanced", "basic"])  # killed while it was asked
    study = open_study(storage, "s", of)
    left = remaining(study, of)
    assert held == points[3] and left == Remaining(points[3:], 5), "in their order, since pruning depends on it"
    for point in left.points:
        study.enqueue_trial(point)
    done += [finish(study, of, 0.5) for _ in range(left.count)]
    assert sorted(map(str, done)) == sorted(map(str, points))
    assert remaining(study, of) == Remaining([], 0)


def test_the_measure_and_the_cost_are_the_values_of_an_outcome(storage):
    of = Space(name="s", recipe="retromae", parameters=DECODER, search="tpe", cost=SIZE, trials=5)
    study = open_study(storage, "s", of)
    trial = study.ask()
    point = suggest(of, trial)
    study.tell(trial, [0.4, 512.0])
    (found,) = outcomes(study, of)
    assert (found.parameters, found.values, found.complete, found.last) == (point, (0.4, 512.0), True, 0.4)
    assert remaining(study, of) == Remaining([], 4)


def test_of_a_trial_that_no_scheduler_stopped_the_last_result_is_not_counted_twice(storage):
    """Ray reports the end of a trial that no scheduler stopped both as its last step and as its value."""
    grid = space()
    study = open_study(storage, "s", grid)
    trial = study.ask()
    suggest(grid, trial)
    for number in (1, 2, 3):
        trial.report(number / 10, number)
    study.tell(trial, 0.3)
    (found,) = outcomes(study, grid)
    assert found.measures == {1: 0.1, 2: 0.2, 3: 0.3} and found.complete and found.values == (0.3,)


def finish(study, of, value, rungs=3):
    trial = study.ask()
    suggest(of, trial)
    for number in range(1, rungs):
        trial.report(value, number)
    study.tell(trial, value)  # as Ray does: the last result is the value, and not reported beside it
    return trial.params


def test_a_sampled_sweep_counts_finished_trials_against_its_budget(storage):
    tpe = space(search="tpe")
    study = open_study(storage, "s", tpe)
    assert remaining(study, tpe) == Remaining([], 6)
    finish(study, tpe, 0.5)
    held = suggest(tpe, study.ask())
    assert remaining(open_study(storage, "s", tpe), tpe) == Remaining([held], 5)
    failed = study.get_trials(states=(TrialState.FAIL,))
    assert [trial.params for trial in failed] == [held]


def test_points_that_a_killed_process_had_not_begun_come_after_the_one_that_it_held(storage):
    tpe = space(search="tpe")
    study = open_study(storage, "s", tpe)
    for ratio in (0.2, 0.3):
        study.enqueue_trial({"a.x": ratio, "a.y": 0.5})
    held = suggest(tpe, study.ask())
    assert remaining(open_study(storage, "s", tpe), tpe) == Remaining([held, {"a.x": 0.3, "a.y": 0.5}], 6)
    assert not study.get_trials(states=(TrialState.WAITING, TrialState.RUNNING))


def test_the_same_seed_asks_the_same_points(tmp_path):
    tpe = space(search="tpe")
    asked = []
    for run in range(2):
        storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / f'{run}.db'}")
        open_study(storage, "s", tpe)
        study = optuna.load_study(study_name="s", storage=storage, sampler=sampler(tpe, seed=3))
        asked.append([finish(study, tpe, value) for value in (0.1, 0.3, 0.2, 0.4, 0.35, 0.1)])
    assert asked[0] == asked[1]


EARLIER = ((0.2, 0.3, 0.4), (0.5, 0.6, 0.7), (0.1,), (0.4, 0.5))
"""Measure of each trial at the rungs that it reached."""


class Trial(NamedTuple):
    trial_id: str


def decide(asha, trial: Trial, rung: int, value: float) -> str:
    return asha.on_trial_result(None, trial, {"rung": rung, "objective0": value})


def test_a_resumed_sweep_prunes_as_one_that_was_never_killed():
    of = Space(name="s", recipe="retromae", parameters={"a.x": {"values": (1, 2)}}, measure="R@10")
    whole = scheduler(pruning(of, []))
    for number, values in enumerate(EARLIER):
        trial = Trial(f"t{number}")
        whole.on_trial_add(None, trial)
        for rung, value in enumerate(values, start=1):
            decide(whole, trial, rung, value)
    reached = [dict(enumerate(values, start=1)) for values in EARLIER]
    found = [Outcome({"a.x": number}, values, len(values) == 3) for number, values in enumerate(reached)]
    resumed = scheduler(pruning(of, found))
    decisions = []
    for number, (rung, value) in enumerate([(1, 0.15), (1, 0.35), (1, 0.9), (2, 0.45), (2, 0.8)]):
        trial = Trial(f"new{number}")
        pair = []
        for asha in (whole, resumed):
            asha.on_trial_add(None, trial)
            pair.append(decide(asha, trial, rung, value))
        decisions.append(pair)
    assert all(one == other for one, other in decisions)
    assert {one for one, _ in decisions} == {TrialScheduler.STOP, TrialScheduler.CONTINUE}
