"""Trials on a real Ray: those that end before their last rung are told, with how they ended."""

from pathlib import Path
from typing import Any

import optuna

from midmask.artifact import Place
from midmask.backend.resources import Resources
from midmask.backend.tune import Halving, Report, TrialSearch, objective, run_trials

VALUES = {"good": 0.9, "poor": 0.1, "better": 0.95}


def trial(point: dict[str, Any], report: Report) -> None:
    if point["kind"] == "broken":
        raise ValueError("no such kind")
    for rung in (1, 2):
        report({"rung": rung, objective(0): VALUES[point["kind"]]})


def suggest(asked: optuna.Trial) -> dict[str, Any]:
    return {"kind": asked.suggest_categorical("kind", [*VALUES, "broken"])}


def test_trials_that_are_pruned_or_fail_are_told(ray_local: None, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    points = [{"kind": kind} for kind in ("good", "poor", "broken", "better")]
    search = TrialSearch(
        study="told",
        storage=optuna.storages.InMemoryStorage(),
        sampler=optuna.samplers.RandomSampler(seed=0),
        suggest=suggest,
        modes=["max"],
        points=points,
    )
    one_by_one = Resources(cpus=1, gpus=0, side_by_side=1)
    halving = Halving("max", rungs=2, reduction=2)
    run_trials(
        trial, search, len(points), one_by_one, halving, Place(str(tmp_path)),
        lambda point, how: told.append((point["kind"], how)),
    )  # fmt: skip
    assert told == [("poor", "pruned"), ("broken", "failed")]
