"""Jobs that are interrupted or killed: what MLflow shows of them afterwards, and what they print and leave."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.tracking import Tracker
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.processes import has_row, kill_tree, start
from tests.support.tracking.stores import QUICK
from tests.support.waiting import wait_until

SMALL = ["--set", "tokens.vocabulary_size=300", "--set", "pretrain.batch_size=8", "--set", "pretrain.steps=20000"]


@contextmanager
def running(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A middle training of which nothing outlives the block."""
    process = start(home, "pretrain", *arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_tree(process)


def runs_in(home: Path) -> list:
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiment = client.get_experiment_by_name("midmask")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def wait_for_loss(home: Path, job: subprocess.Popen[str], since: float) -> None:
    """Until a training of this job has reported."""
    query = "SELECT 1 FROM metrics WHERE key = 'pretrain/loss' AND timestamp >= ?"
    wait_until(lambda: has_row(home / "mlflow.db", query, int(since * 1000)), job)


def states(home: Path) -> set[tuple[str, str, str]]:
    """(step, MLflow's status, midmask's) of every run but those of finished steps."""
    found = {(run.data.tags["midmask.step"], run.info.status, run.data.tags["midmask.status"]) for run in runs_in(home)}
    return {one for one in found if one[1] != "FINISHED"}


@pytest.mark.timeout(900)
def test_an_interrupted_job_is_killed_in_mlflow_and_so_is_one_that_was_killed(tmp_path: Path) -> None:
    arguments = ["--corpus", write_collection(tmp_path / "words"), *SMALL]
    killed = {("pretrain", "KILLED", "killed"), ("job", "KILLED", "killed")}
    began = time.time()
    with running(tmp_path, *arguments) as interrupted:
        wait_for_loss(tmp_path, interrupted, began)
        os.killpg(interrupted.pid, signal.SIGINT)
        _, said = interrupted.communicate(timeout=120)
    assert interrupted.returncode == 130, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("interrupted; the same command goes on") and "jobs/pretrain.py --corpus" in last, said
    own = [line for line in said.splitlines() if "pid=" not in line]  # Ray's processes may print what their end costs
    assert not any(line.startswith("Traceback") for line in own), said
    assert states(tmp_path) == killed

    began = time.time()
    with running(tmp_path, *arguments) as doomed:
        wait_for_loss(tmp_path, doomed, began)
        kill_tree(doomed)
    assert states(tmp_path) > {("job", "RUNNING", "running")}
    Tracker(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, QUICK).close()
    assert states(tmp_path) == killed
    assert len([run for run in runs_in(tmp_path) if run.data.tags["midmask.step"] == "job"]) == 1
