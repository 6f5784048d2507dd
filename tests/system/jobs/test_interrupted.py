"""Jobs that are interrupted or killed: what MLflow shows of them, and no credentials are left; and large dry runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from midmask.tracking.runs import Tracker
from tests.support.benchmark.tiny import write_collection
from tests.support.disks import opens
from tests.support.jobs.processes import has_row, head, interruptible, kill_tree, start
from tests.support.jobs.running import (
    ENVIRONMENT,
    JOBS,
    PASSWORD,
    USER,
    found_below,
    found_in,
    outcome,
    run_job,
    tracking_uri,
)
from tests.support.tracking.server import Guarded, Server
from tests.support.tracking.stores import QUICK
from tests.support.waiting import wait_until

SMALL = ["--set", "tokens.vocabulary_size=300", "--set", "pretrain.batch_size=8", "--set", "pretrain.steps=20000"]
LONG_TRIALS = {
    "name": "one", "recipe": "retromae", "search": "grid", "baselines": [], "seeds": [0],
    "parameters": {"tokens.query_length": {"values": [16]}},
    "settings": {"tokens.vocabulary_size": 300, "pretrain.batch_size": 8, "pretrain.steps": 20000},
}  # fmt: skip


@contextmanager
def running(home: Path, *arguments: str, job: str = "pretrain") -> Iterator[subprocess.Popen[str]]:
    """A job of which nothing outlives the block."""
    process = start(home, job, *arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_tree(process)


def runs_in(uri: str) -> list:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("midmask")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def wait_for_loss(home: Path, job: subprocess.Popen[str], since: float) -> None:
    """Until a training of this job has reported."""
    query = "SELECT 1 FROM metrics WHERE key = 'pretrain/loss' AND timestamp >= ?"
    wait_until(lambda: has_row(home / "mlflow.db", query, int(since * 1000)), job)


def states(home: Path) -> set[tuple[str, str, str]]:
    """(step, MLflow's status, midmask's) of every run but those of finished steps."""
    left = [run for run in runs_in(f"sqlite:///{home}/mlflow.db") if run.info.status != "FINISHED"]
    return {(run.data.tags["midmask.step"], run.info.status, run.data.tags["midmask.status"]) for run in left}


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
    own = [line for line in said.splitlines() if line and "pid=" not in line]  # Ray's may print what their end costs
    assert own[-1].startswith("interrupted; the same command goes on") and "jobs/pretrain.py --corpus" in own[-1], said
    assert not any(line.startswith("Traceback") for line in own), said
    assert states(tmp_path) == killed

    began = time.time()
    with running(tmp_path, *arguments) as doomed:
        wait_for_loss(tmp_path, doomed, began)
        kill_tree(doomed)
    assert states(tmp_path) > {("job", "RUNNING", "running")}
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    Tracker(uri, tmp_path, QUICK).close()
    assert states(tmp_path) == killed
    assert len([run for run in runs_in(uri) if run.data.tags["midmask.step"] == "job"]) == 1


def test_an_interrupted_sweep_does_not_end_as_half_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(LONG_TRIALS))
    began, sweep = time.time(), ["--space", str(tmp_path / "one.yaml"), "--workers", "1"]
    with running(tmp_path, *sweep, "--corpus", write_collection(tmp_path / "words"), job="sweep") as interrupted:
        wait_for_loss(tmp_path, interrupted, began)
        os.killpg(interrupted.pid, signal.SIGINT)
        _, said = interrupted.communicate(timeout=120)
    assert interrupted.returncode == 130, said
    assert "\ninterrupted; the same command goes on" in said, said
    assert not list(tmp_path.glob("store/sweep/*/sweep.json"))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.start()
    server.wait()
    proxy = Guarded(server.port, USER, PASSWORD)
    yield proxy
    proxy.stop()
    server.stop()


def test_a_whole_job_leaves_no_credentials(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused first, then interrupted in its training, on a Ray whose workers have the planted environment too."""
    home, uri = tmp_path / "home", tracking_uri(guarded.server_port)
    home.mkdir()
    job = [sys.executable, str(JOBS / "pretrain.py"), "--corpus", write_collection(home / "words"), *SMALL]
    code, said = outcome(*job, home=home, MLFLOW_TRACKING_URI=tracking_uri(guarded.server_port, "another"))
    assert code == 2 and b"MLFLOW_TRACKING_TOKEN" in said and found_in(said) == []

    for name, value in {**ENVIRONMENT, "MLFLOW_TRACKING_URI": uri}.items():
        monkeypatch.setenv(name, value)
    began = time.time()
    with head(CPU=2) as environment, open(tmp_path / "said", "wb") as said_by_job:
        own, pipes = {**environment, "MIDMASK_HOME": str(home)}, {"stdout": said_by_job, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(job, env=own, **pipes, preexec_fn=interruptible)
        wait_until(lambda: any("pretrain/loss" in run.data.metrics for run in runs_in(uri)), process, tmp_path / "said")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        rays = [path for path in Path("/tmp").glob("demo*") if path.stat().st_ctime >= began]
        assert any(path.name == "raylet.out" for folder in rays for path in folder.rglob("raylet.out"))
        assert found_below([home, tmp_path / "server", *rays]) == {}
    text = (tmp_path / "said").read_text()
    assert "interrupted; the same command goes on" in text and "jobs/pretrain.py --corpus" in text
    assert found_in(text.encode()) == [], text
    assert guarded.passed_on > 10
    assert {run.info.status for run in runs_in(uri)} <= {"FINISHED", "KILLED"}


FILES = {"corpus.jsonl", "queries.jsonl", "train.tsv", "dev.tsv", "test.tsv"}
OPENS = 5
"""Of a file by a dry run: fingerprinted once; the others look at its first rows, for form, layout, splits and size."""
SPACE = {
    "name": "few", "recipe": "retromae", "search": "grid", "baselines": ["none", "mlm"],
    "parameters": {"objective.encoder_mask_ratio": {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}},
}  # fmt: skip
JOBS_OF_MANY = ["sweep --space few.yaml", "benchmark_middle_training --systems none,mlm,retromae"]
JOBS_OF_MANY += ["sweep_decoder_depth", "sweep_sparse_topn"]


@pytest.mark.parametrize("job", JOBS_OF_MANY)
def test_a_dry_run_reads_its_collection_once_and_leaves_nothing(job: str, tmp_path: Path, monkeypatch) -> None:
    """However many points or systems there are."""
    (home := tmp_path / "home").mkdir()
    (tmp_path / "few.yaml").write_text(yaml.safe_dump(SPACE))
    monkeypatch.chdir(tmp_path)
    corpus = write_collection(tmp_path / "words")
    with opens(tmp_path / "words", tmp_path / "words" / "qrels") as counts:
        done = run_job(*job.split(), "--corpus", corpus, "--dry-run", home=home)
    assert done.code == 0, done.err[-2000:]
    assert f"corpus.name = {corpus}" in done.out and "to do" in done.out
    assert "in all" in done.out.split("estimate on this machine")[1]
    assert list(home.iterdir()) == []
    assert counts.keys() == FILES and set(counts.values()) == {OPENS}, counts


def test_a_dry_run_is_that_of_the_job_and_imports_neither_ray_nor_mlflow(tmp_path: Path) -> None:
    environment = {**os.environ, "MIDMASK_HOME": str(tmp_path)}
    flags = ["--dry-run", "--set", "pretrain.steps=3"]
    commands = [["-X", "importtime", "-m", "midmask.commands", "pretrain"], ["-X", "importtime", "jobs/pretrain.py"]]
    quiet = {"env": environment, "cwd": JOBS.parent, "capture_output": True, "text": True, "check": True}
    done = [subprocess.run([sys.executable, *one, *flags], **quiet) for one in commands]
    plans, hours = zip(*(one.stdout.split("\nestimate on this machine") for one in done), strict=True)
    assert plans[0] == plans[1] and "pretrain.steps = 3" in plans[0] and all("peak storage" in one for one in hours)
    for one in done:
        imported = {row.rpartition("|")[2].strip().split(".")[0] for row in one.stderr.splitlines()}
        assert "torch" in imported and not imported & {"ray", "mlflow", "pandas"}
