"""How long the tests wait for a store, what they track, and what a store holds, asked from MLflow itself."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel

from midmask.tracking.lineage import Dataset, TrackedModel
from midmask.tracking.store import Patience

QUICK = Patience(answer=30, close=20, flush=0.02, retry=0.05, longest_retry=0.2)
TAGS = {"midmask.fingerprint": "f00d", "midmask.step": "pretrain"}
SQUAD = Dataset("squad", "c0ffee123456", "beir:/data/squad", "pretrain", {"passages": 18000, "queries": 300})
MODEL = TrackedModel(
    "finetune-dupmae-/models/x: y", "finetune", "f00df00df00d", "retriever", "/store/finetune/f00df00df00d",
    {"train.steps": 500, "loss.name": "contrastive"}, {"midmask.recipe": "dupmae"},
)  # fmt: skip


def history(uri: str, run_id: str, key: str) -> list[tuple[int, float]]:
    """(step, value) of every point the store holds."""
    return sorted((point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, key))


def experiment(uri: str) -> str:
    found = MlflowClient(uri).get_experiment_by_name("midmask")
    assert found is not None
    return str(found.experiment_id)


def statuses(uri: str) -> dict[str, tuple[str, str]]:
    """Run id -> MLflow's own status and midmask's."""
    runs = MlflowClient(uri).search_runs([experiment(uri)])
    return {run.info.run_id: (run.info.status, run.data.tags["midmask.status"]) for run in runs}


def models(uri: str) -> list[LoggedModel]:
    return list(MlflowClient(uri).search_logged_models([experiment(uri)]))


def links(uri: str, run_id: str) -> dict[str, Any]:
    """Of a run: (name, digest, context) of its datasets, and the models that it used and made, with duplicates."""
    run = MlflowClient(uri).get_run(run_id)
    found = [(one.dataset.name, one.dataset.digest, one.tags[0].value) for one in run.inputs.dataset_inputs]
    made = [(one.model_id, one.step) for one in run.outputs.model_outputs]
    return {"datasets": sorted(found), "used": [one.model_id for one in run.inputs.model_inputs], "made": made}


DRIVER = """
import os, signal, sys
from pathlib import Path
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
from tests.support.tracking.stores import MODEL, SQUAD, TAGS
tracker = Tracker(sys.argv[1], Path(sys.argv[2]), Patience(flush=3600))
{}
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(uri: str, home: Path, work: str) -> str:
    """What a process printed that did this work with `tracker`, sent nothing of it, and was killed."""
    done = subprocess.run([sys.executable, "-c", DRIVER.format(work), uri, home], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()
