"""Real heads, drivers, nodes: how jobs reach a cluster, what nodes compute, how mistakes and ends are told."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import ray
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from midmask.app.job import mistake_in
from midmask.backend.cluster import Resources
from midmask.backend.tune import Halving, Report, TrialSearch, objective, run_trials
from midmask.commands.doctor import why_not_writable
from midmask.errors import UserError
from midmask.store.place import Place
from tests.support.jobs.processes import DEMO, head
from tests.support.waiting import free_port


def test_a_store_without_a_server_is_told_as_such() -> None:
    where = f"endpoint_override=127.0.0.1:{free_port()}&scheme=http"
    said = why_not_writable(Place(f"s3://somebody:secret@bucket/store?{where}"))
    assert "connect" in said.lower() and "secret" not in said


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


LOCAL_RAY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import ray
from midmask.backend.cluster import connect
connect()
print(ray.cluster_resources()["CPU"])
"""


def test_a_local_ray_has_the_cores_that_its_process_may_use() -> None:
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    code, out, err = outcome([sys.executable, "-c", LOCAL_RAY], environment)
    assert code == 0 and float(out.split()[-1]) == 1, err


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
    storage, sampler = optuna.storages.InMemoryStorage(), optuna.samplers.RandomSampler(seed=0)
    search = TrialSearch("told", storage, sampler, suggest=suggest, has_cost=False, points=points)
    use, halving = Resources(cpus=1, gpus=0, side_by_side=1), Halving(rungs=2, reduction=2)

    def tell(point: dict[str, Any], how: str) -> None:
        told.append((point["kind"], how))

    run_trials(trial, search, len(points), use, halving, Place(str(tmp_path)), tell)
    assert told == [("poor", "pruned"), ("broken", "failed")]


ENTRY = Path(__file__).resolve().parents[3] / "jobs" / "_entry.py"
RAY = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit"]
JOB = '''#!/usr/bin/env python3
"""Adds two numbers on the cluster."""

import _entry  # noqa: F401
import ray
from midmask.app.job import run
from midmask.backend.cluster import connect


@ray.remote
def add(left, right):
    return left + right


def work(options, flags):
    connect()
    print("sum", ray.get(add.remote(2, flags.right)), "store", options.storage)


if __name__ == "__main__":
    run(work, __doc__, lambda parser: parser.add_argument("--right", type=int, default=3, help="what is added"))
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "jobs").mkdir()
    (folder / "pyproject.toml").touch()
    shutil.copy(ENTRY, folder / "jobs")
    (folder / "jobs" / "add.py").write_text(JOB)
    (folder / "jobs" / "add.py").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cluster(project: Path) -> Iterator[dict[str, str]]:
    """A head with token authentication, started in the project's folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.chdir(project):
            environment = stack.enter_context(head(CPU=1))
        yield environment


def outcome(command: list[str], environment: dict[str, str], folder: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_job_is_submitted_by_its_path(cluster: dict[str, str], project: Path, tmp_path: Path) -> None:
    """It runs in the folder, and with the Python, that the head was started with, wherever it is submitted from."""
    code, out, err = outcome([*RAY, "--", "jobs/add.py", "--right", "5"], cluster, tmp_path)
    assert code == 0, out + err
    assert f"sum 7 store {project}/store" in out


def test_a_driver_joins_by_address_and_one_with_a_wrong_token_is_told(cluster: dict[str, str], project: Path) -> None:
    job = [sys.executable, str(project / "jobs" / "add.py")]
    code, out, err = outcome(job, cluster)
    assert code == 0 and "sum 5" in out and "joined the Ray cluster" in err
    code, out, err = outcome(job, cluster | {"RAY_AUTH_TOKEN": "f" * 64})
    assert (code, out) == (2, "")
    assert "cannot join the Ray cluster" in err.splitlines()[-1] and "RAY_AUTH_TOKEN" in err.splitlines()[-1]


def test_an_address_without_a_cluster_is_one_line(project: Path) -> None:
    for address, part in (("127.0.0.1:1", "no Ray cluster answers"), ("http://127.0.0.1:8265", "is a job server")):
        environment = os.environ | {"RAY_ADDRESS": address}
        code, _, err = outcome([sys.executable, str(project / "jobs" / "add.py")], environment)
        assert code == 2 and len(err.splitlines()) == 1 and part in err


def test_without_a_cluster_a_local_ray_serves_and_leaves_no_token(project: Path, tmp_path: Path) -> None:
    """One in the user's home would make every later `ray start` demand it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as short:
        environment |= {"HOME": str(tmp_path), "RAY_TMPDIR": short}  # no cluster is on record there
        code, out, err = outcome([sys.executable, str(project / "jobs" / "add.py")], environment)
    assert code == 0 and "sum 5" in out and "started a local one" in err, err
    assert not (tmp_path / ".ray").exists()


def test_the_demos_cluster_ends_whole_with_its_command_and_has_its_exit_code() -> None:
    """It starts beside any other Ray; SIGTERM is passed on to the command."""
    code = "import os, sys, time; print(os.environ['RAY_ADDRESS'], flush=True); time.sleep(600)"
    process = subprocess.Popen([*DEMO, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    host, port = process.stdout.readline().strip().split(":")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) > 3
    process.terminate()
    assert process.wait() == 130
    psutil.wait_procs(family)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_a_cluster_that_cannot_start_says_what_ray_said() -> None:
    environment = {**os.environ, "RAY_OVERRIDE_RESOURCES": '{"CPU": -1}'}
    code, out, err = outcome([*DEMO, "true"], environment)
    assert (code, out) == (1, "") and "Ray did not start" in err
