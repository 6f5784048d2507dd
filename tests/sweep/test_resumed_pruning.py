"""ASHA in a sweep that was killed: it prunes as it would have, had it seen the earlier trials itself."""

from typing import NamedTuple

import pytest
from ray.tune.schedulers import TrialScheduler

from midmask.backend.tune import scheduler
from midmask.sweep.search import pruning
from midmask.sweep.space import Space
from midmask.sweep.study import Outcome

EARLIER = ((0.2, 0.3, 0.4), (0.5, 0.6, 0.7), (0.1,), (0.4, 0.5))
"""First objective of each trial at the rungs that it reached."""


class Trial(NamedTuple):
    trial_id: str


def space(mode: str) -> Space:
    return Space(name="s", recipe="retromae", parameters={"a.x": {"values": (1, 2)}}, measure="R@10", mode=mode)


def decide(asha, trial: Trial, rung: int, value: float) -> str:
    return asha.on_trial_result(None, trial, {"rung": rung, "objective0": value})


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_resumed_sweep_prunes_as_one_that_was_never_killed(mode):
    of, sign = space(mode), 1 if mode == "max" else -1
    whole = scheduler(pruning(of, []))
    for number, values in enumerate(EARLIER):
        trial = Trial(f"t{number}")
        whole.on_trial_add(None, trial)
        for rung, value in enumerate(values, start=1):
            decide(whole, trial, rung, sign * value)
    found = [
        Outcome({"a.x": number}, {rung: sign * value for rung, value in enumerate(values, start=1)}, len(values) == 3)
        for number, values in enumerate(EARLIER)
    ]
    resumed = scheduler(pruning(of, found))
    decisions = []
    for number, (rung, value) in enumerate([(1, 0.15), (1, 0.35), (1, 0.9), (2, 0.45), (2, 0.8)]):
        trial = Trial(f"new{number}")
        pair = []
        for asha in (whole, resumed):
            asha.on_trial_add(None, trial)
            pair.append(decide(asha, trial, rung, sign * value))
        decisions.append(pair)
    assert all(one == other for one, other in decisions)
    assert {one for one, _ in decisions} == {TrialScheduler.STOP, TrialScheduler.CONTINUE}
