"""Credentials in tracking URI, environment and flags appear nowhere: every byte that jobs leave is searched."""

import json
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
from tests.support.jobs.planted import ENVIRONMENT, FLAGS, PASSWORD, USER, found_below, found_in, tracking_uri
from tests.support.tracking.guarded import Guarded
from tests.support.tracking.server import Server
from tests.support.waiting import wait_until

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SMALL = ["--set", "tokens.vocabulary_size=300", "--set", "pretrain.steps=20000", "--set", "pretrain.batch_size=8"]

PLANTED = [
    tracking_uri(1),
    "s3://AKIAPLANTEDKEY01:plantedSecret/Key+02@bucket/place",
    "s3://bucket/x?secret_access_key=plantedSecret/Key+02&sig=plantedSignature06",
    "account_key=plantedAccount05==",
    '{"token": "plantedToken07"}',
    "the store refuses plantedSecret/Key+02",
]

TRACKED = """
import json, logging, sys
from pathlib import Path
from midmask.app.job import run
from midmask.tracking import Dataset, Patience, TrackedModel, Tracker

def work(options, flags):
    planted = json.loads(Path(flags.planted).read_text())
    with Tracker(options.tracking_uri, options.home, Patience(flush=0.02)) as tracker:
        for text in planted:
            with tracker.run(f"a {text}", tags={"where": text}, params={"where": text, "all": [text]}) as run:
                run.log_text(text, "notes/a.txt")
                run.describe(text)
                run.log_inputs([Dataset("squad", "d", text, "train")])
                run.log_output_model(TrackedModel("m", "pretrain", text[:3], "encoder", text, {"where": text}), 1)
                try:
                    raise ConnectionError(f"cannot reach {text}")
                except ConnectionError:
                    logging.getLogger("someone.else").exception("no answer from %s", text)
        print(options.where_to_look())
        raise RuntimeError(f"no answer from {' or '.join(planted)}")

run(work, "Tracks.", lambda parser: parser.add_argument("--planted"))
"""


def outcome(*command: str, home: Path, **environment: str) -> tuple[int, bytes]:
    """Exit code, and all that is printed."""
    own = {**os.environ, **ENVIRONMENT, "MIDMASK_HOME": str(home), **environment}
    done = subprocess.run(
        command, env=own, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120
    )
    return done.returncode, done.stdout


def test_what_is_tracked_logged_and_raised_names_no_credentials(tmp_path: Path) -> None:
    """Every way into the store, logged tracebacks, and one that ends the process."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "track.py").write_text(TRACKED)
    (tmp_path / "planted.json").write_text(json.dumps(PLANTED))
    command = [sys.executable, str(tmp_path / "track.py"), "--planted", str(tmp_path / "planted.json")]
    code, said = outcome(*command, home=home, MLFLOW_TRACKING_URI=f"sqlite:///{home}/mlflow.db")
    assert code == 1 and said.count(b"Traceback") == len(PLANTED) + 1, said.decode()
    assert said.count(b"***") > 2 * len(PLANTED) and found_in(said) == [], said.decode()
    assert found_below([home]) == {}


@pytest.mark.parametrize("flag", FLAGS)
def test_credentials_in_a_storage_or_collection_are_refused_in_one_line(flag: str, tmp_path: Path) -> None:
    code, said = outcome(sys.executable, str(JOBS / "pretrain.py"), flag, FLAGS[flag], home=tmp_path)
    assert code == 2 and len(said.splitlines()) == 1
    assert said.startswith(f"error: {flag} ".encode()) and b"AWS_SECRET_ACCESS_KEY" in said
    assert found_in(said) == [] and list(tmp_path.iterdir()) == []


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


@pytest.mark.slow
@pytest.mark.timeout(600)
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
