"""Nodes and workers of a real Ray: what they say of themselves and compute aside; how mistakes and ends are told."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
import ray
import torch
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from midmask.app.checkup import faults
from midmask.app.exits import mistake_in
from midmask.app.tracked_job import expected_seconds
from midmask.artifact import Place
from midmask.backend.aside import compute_aside
from midmask.backend.nodes import report_on_nodes
from midmask.backend.resources import Resources
from midmask.backend.tune import Halving, Report, TrialSearch, objective, run_trials
from midmask.checks import own_versions, why_not_writable
from midmask.errors import UserError
from midmask.estimate import estimate
from midmask.estimate.devices import this_machine
from midmask.experiment.plan import plan
from midmask.recipes import RECIPES
from tests.support.benchmark.tiny import short, write_collection


def test_a_sound_node_has_no_faults_and_leaves_nothing_in_the_store(ray_local: None, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (report,) = report_on_nodes(Place(str(tmp_path / "store")), f"sqlite:///{tmp_path}/mlflow.db")
    assert faults([report], own_versions()) == [[]]
    assert report.name == socket.gethostname() and report.versions == own_versions() and abs(report.clock) < 1
    assert list((tmp_path / "store").iterdir()) == [] and not (tmp_path / "mlflow.db").exists()


def test_stores_that_it_cannot_use_are_told_with_the_reason(ray_local: None, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "file").write_text("no folder")
    (report,) = report_on_nodes(Place(str(tmp_path / "file")), f"http://127.0.0.1:{port}")
    (of_store, of_tracking) = faults([report], own_versions())[0]
    assert of_store.startswith("cannot use the store: ") and str(tmp_path / "file") in of_store
    assert of_tracking.startswith("cannot use the tracking server: ") and f"127.0.0.1:{port}" in of_tracking


def test_a_store_without_a_server_is_told_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    place = Place(f"s3://somebody:secret@bucket/store?endpoint_override=127.0.0.1:{port}&scheme=http")
    said = why_not_writable(place)
    assert "connect" in said.lower() and "secret" not in said


DRIVER = """
import os, signal, sys, time
import ray
from midmask.backend.connection import connect

connect()
node = ray._private.worker._global_node
print(node.get_temp_dir_path(), flush=True)

@ray.remote
def wait(): time.sleep(600)

task = wait.remote()
ray.wait([task], timeout=1)
(raylet,) = node.all_processes["raylet"]
os.kill(raylet.process.pid, signal.SIGKILL)
time.sleep(60)
"""


def test_a_killed_raylet_ends_its_driver_with_one_line_and_nothing_is_left() -> None:
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(
        command, env={**os.environ, "RAY_ADDRESS": "local"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    (line,) = lines
    assert "local Ray" in line and "raylet: signal 9" in line and "go on with: " in line
    assert "Traceback" not in done.stderr
    folder = Path(done.stdout.splitlines()[0])
    assert folder.name.startswith("mm") or folder.parent.name.startswith("mm")
    assert not folder.exists()


def test_it_is_another_process_and_refusals_are_raised(ray_local: None) -> None:
    assert compute_aside(lambda number: (number, os.getpid()), 7)[0] == 7
    assert compute_aside(lambda: os.getpid()) != os.getpid()
    with pytest.raises(ZeroDivisionError):
        compute_aside(lambda: 1 / 0)


def test_steps_are_expected_to_take_what_a_dry_run_says_and_no_random_number_is_drawn_here(
    ray_local: None, tmp_path
) -> None:
    recipe = short(RECIPES["retromae"](), write_collection(tmp_path / "tiny"))
    storage, steps = Place(str(tmp_path / "store")), list(plan(recipe).evaluation(recipe.evaluation).upstream())
    torch.manual_seed(4)
    before = torch.get_rng_state()
    found = expected_seconds(steps, storage=storage, use=Resources(cpus=1, gpus=0, side_by_side=2))
    assert torch.equal(torch.get_rng_state(), before)
    told = estimate(steps[-1:], storage, this_machine(), workers=2, side_by_side=True)
    assert sum(found.values()) == pytest.approx(told.total_hours * 3600, rel=1e-9) and len(found) == len(steps)


def test_a_mistake_in_a_task_is_found_inside_what_ray_raises(ray_local: None) -> None:
    @ray.remote
    def fail(error: Exception) -> None:
        raise error

    @ray.remote
    def fail_inside(error: Exception) -> None:
        ray.get(fail.remote(error))

    mistake = UserError("mask_ratio = 1.7:\n  must be below 1")
    for task in (fail, fail_inside):
        with pytest.raises(UserError) as raised:
            ray.get(task.remote(mistake))
        assert mistake_in(raised.value) == "mask_ratio = 1.7: must be below 1"
        for wrapped in (WorkerGroupError("x", {0: KeyError(), 1: raised.value}), ControllerError(raised.value)):
            assert mistake_in(wrapped) == "mask_ratio = 1.7: must be below 1"
    with pytest.raises(KeyError) as bug:
        ray.get(fail.remote(KeyError("a bug")))
    assert mistake_in(bug.value) is None


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
