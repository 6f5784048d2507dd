"""How long the tests wait for a store, what their runs are called, and what a store holds."""

import signal
import subprocess
import sys
from pathlib import Path

from mlflow import MlflowClient

from midmask.tracking import Patience

QUICK = Patience(answer=30, close=20, flush=0.02, retry=0.05, longest_retry=0.2)
NEVER = Patience(answer=30, close=20, flush=3600, retry=0.05)
"""Gathers for an hour, so that nothing reaches the store before the tracker is closed."""

TAGS = {"midmask.fingerprint": "f00d", "midmask.step": "pretrain"}


def history(uri: str, run_id: str, key: str) -> list[tuple[int, float]]:
    """(step, value) of every point the store holds, asked from MLflow itself."""
    return sorted((point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, key))


def statuses(uri: str) -> dict[str, tuple[str, str]]:
    """Run id -> MLflow's own status and midmask's."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("midmask")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    return {run.info.run_id: (run.info.status, run.data.tags["midmask.status"]) for run in runs}


DRIVER = """
import os, signal, sys
from pathlib import Path
from midmask.tracking import Patience, Tracker
from tests.support.tracking.lineage import MODEL, SQUAD
from tests.support.tracking.stores import TAGS
tracker = Tracker(sys.argv[1], Path(sys.argv[2]), Patience(flush=3600))
{}
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(uri: str, home: Path, work: str) -> str:
    """What a process printed that did this work with `tracker`, sent nothing of it, and was killed."""
    done = subprocess.run([sys.executable, "-c", DRIVER.format(work), uri, home], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()
