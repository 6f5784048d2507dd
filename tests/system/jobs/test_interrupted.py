"""Jobs that are interrupted or killed: what MLflow shows of them afterwards, and what they print and leave."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.tracking import Tracker
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.killing import kill_tree
from tests.support.tracking.stores import QUICK
from tests.support.waiting import wait_until

JOBS = Path(__file__).resolve().parents[3] / "jobs"
SMALL = ["--set", "tokens.vocabulary_size=300", "--set", "pretrain.batch_size=8", "--set", "pretrain.steps=20000"]
SPACE = """
name: two
recipe: retromae
search: grid
trials: 2
parameters:
  objective.encoder_mask_ratio: {values: [0.15, 0.3]}
baselines: [none]
"""


@contextmanager
def running(home: Path, job: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A job in a session of its own, as from a terminal: an interrupt goes to it and to all that it started. Nothing of
    it outlives the block.
    """
    environment = {**os.environ, "MIDMASK_HOME": str(home)}
    environment.pop("RAY_ADDRESS", None)
    process = subprocess.Popen(
        [sys.executable, str(JOBS / f"{job}.py"), *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
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
    """Until a training of this job has reported. Looked up without MLflow, which would make tables in a file whose
    tables the job is just making.
    """
    query = "SELECT 1 FROM metrics WHERE key = 'pretrain/loss' AND timestamp >= ?"

    def has_reported() -> bool:
        try:
            with closing(sqlite3.connect(f"file:{home}/mlflow.db?mode=ro", uri=True)) as store:
                return store.execute(query, [int(since * 1000)]).fetchone() is not None
        except sqlite3.OperationalError:
            return False

    wait_until(has_reported, job)


def states(home: Path) -> set[tuple[str, str, str]]:
    """(step, MLflow's status, midmask's) of every run but those of finished steps."""
    found = {(run.data.tags["midmask.step"], run.info.status, run.data.tags["midmask.status"]) for run in runs_in(home)}
    return {one for one in found if one[1] != "FINISHED"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("job", ["pretrain", pytest.param("sweep", marks=pytest.mark.slow)])
def test_an_interrupted_job_is_killed_in_mlflow_and_so_is_one_that_was_killed(job: str, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(SPACE)
    space = ["--space", str(tmp_path / "two.yaml")] if job == "sweep" else []
    arguments = ["--corpus", write_collection(tmp_path / "words"), *SMALL, *space]
    nested, parent = ("trial", "sweep") if job == "sweep" else ("pretrain", "job")
    began = time.time()
    with running(tmp_path, job, *arguments) as interrupted:
        wait_for_loss(tmp_path, interrupted, began)
        os.killpg(interrupted.pid, signal.SIGINT)
        _, said = interrupted.communicate(timeout=120)
    assert interrupted.returncode == 130, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("interrupted; the same command goes on") and f"jobs/{job}.py --corpus" in last, said
    own = [line for line in said.splitlines() if "pid=" not in line]  # Ray's processes may print what their end costs
    assert not any(line.startswith("Traceback") for line in own), said
    killed = {(nested, "KILLED", "killed"), (parent, "KILLED", "killed")}
    assert states(tmp_path) == killed

    began = time.time()
    with running(tmp_path, job, *arguments) as doomed:
        wait_for_loss(tmp_path, doomed, began)
        kill_tree(doomed)
    assert states(tmp_path) > {(parent, "RUNNING", "running")}
    Tracker(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, QUICK).close()
    assert states(tmp_path) == killed
    assert len([run for run in runs_in(tmp_path) if run.data.tags["midmask.step"] == parent]) == 1
