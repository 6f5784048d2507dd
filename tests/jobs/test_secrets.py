"""Credentials in tracking URI, environment and flags appear nowhere: every byte that jobs leave is searched."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.planted import ENVIRONMENT, FLAGS, found_below, found_in, tracking_uri
from tests.support.jobs.running import run_job

JOBS = Path(__file__).resolve().parents[2] / "jobs"

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


def test_what_is_tracked_logged_and_raised_names_no_credentials(tmp_path: Path, empty_store: Path) -> None:
    """Every way into the store, logged tracebacks, and one that ends the process."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(empty_store, home / "mlflow.db")
    (tmp_path / "track.py").write_text(TRACKED)
    (tmp_path / "planted.json").write_text(json.dumps(PLANTED))
    command = [sys.executable, str(tmp_path / "track.py"), "--planted", str(tmp_path / "planted.json")]
    code, said = outcome(*command, home=home, MLFLOW_TRACKING_URI=f"sqlite:///{home}/mlflow.db")
    assert code == 1 and said.count(b"Traceback") == len(PLANTED) + 1, said.decode()
    assert said.count(b"***") > 2 * len(PLANTED) and found_in(said) == [], said.decode()
    assert found_below([home]) == {}


@pytest.mark.parametrize("flag", FLAGS)
def test_credentials_in_a_storage_or_collection_are_refused_in_one_line(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    done = run_job("pretrain", flag, FLAGS[flag], home=tmp_path)
    (line,) = (done.out + done.err).splitlines()
    assert done.code == 2 and line.startswith(f"error: {flag} ") and "AWS_SECRET_ACCESS_KEY" in line
    assert found_in(line.encode()) == [] and list(tmp_path.iterdir()) == []
