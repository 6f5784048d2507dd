"""Credentials in tracking URI, environment and flags appear nowhere: every byte that jobs leave is searched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.backend.head import head
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.planted import ENVIRONMENT, PASSWORD, USER, found_below, found_in, tracking_uri
from tests.support.tracking.server import Guarded, Server
from tests.support.waiting import wait_until

JOBS = Path(__file__).resolve().parents[3] / "jobs"
SMALL = ["--set", "tokens.vocabulary_size=300", "--set", "pretrain.steps=20000", "--set", "pretrain.batch_size=8"]


def outcome(*command: str, home: Path, **environment: str) -> tuple[int, bytes]:
    """Exit code, and all that is printed."""
    own = {**os.environ, **ENVIRONMENT, "MIDMASK_HOME": str(home), **environment}
    done = subprocess.run(
        command, env=own, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120
    )
    return done.returncode, done.stdout


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
    code, said = outcome(*job, "--tracking-uri", tracking_uri(guarded.server_port, "another"), home=home)
    assert code == 2 and b"refuses access" in said and found_in(said) == []

    for name, value in {**ENVIRONMENT, "MLFLOW_TRACKING_URI": uri}.items():
        monkeypatch.setenv(name, value)
    began = time.time()
    with head(cpus=2) as environment, open(tmp_path / "said", "wb") as said_by_job:
        process = subprocess.Popen(
            [*job, "--tracking-uri", uri],
            env={**environment, "MIDMASK_HOME": str(home)},
            stdout=said_by_job,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        wait_for_loss(uri, process, tmp_path / "said")
        assert found_in(Path(f"/proc/{process.pid}/cmdline").read_bytes()) == []
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        own = [path for path in Path("/tmp").glob("mm*") if path.stat().st_ctime >= began]
        assert any(path.name == "raylet.out" for folder in own for path in folder.rglob("raylet.out"))
        assert found_below([home, tmp_path / "server", *own]) == {}
    text = (tmp_path / "said").read_text()
    assert "interrupted; the same command goes on" in text and "jobs/pretrain.py --corpus" in text
    assert found_in(text.encode()) == [], text
    assert guarded.passed_on > 10
    assert {run.info.status for run in runs_in(uri)} <= {"FINISHED", "KILLED"}


def runs_in(uri: str) -> list:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("midmask")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def wait_for_loss(uri: str, process: subprocess.Popen[bytes], said: Path) -> None:
    """Until the training has reported."""
    wait_until(lambda: any("pretrain/loss" in run.data.metrics for run in runs_in(uri)), process, said)
