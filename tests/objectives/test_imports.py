"""Objectives need torch and transformers alone: what a cluster, a tracker or an index needs is never imported."""

import os
import subprocess
import sys
from pathlib import Path

from midmask.objectives import PRETRAINING

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = (
    *("ray", "mlflow", "faiss", "pyarrow", "optuna", "streamlit", "plotly", "bm25s", "Stemmer", "grpc", "sqlalchemy"),
    *("requests", "ir_measures", "pytrec_eval", "scipy.stats", "sentence_transformers"),
)
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from tests.speed.pretraining import main
main("--device cpu --backbone tiny --rows 2 --length 12 --vocabulary 300 --rounds 1".split())
"""


def test_every_method_takes_a_step_without_ray_mlflow_or_pyarrow() -> None:
    """In a fresh process in which importing any of them fails; by the benchmark, which promises the same."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    command = [sys.executable, "-c", PROGRAM.format(blocked=BLOCKED)]
    outcome = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    rows = [line.split("|")[1].strip(" `") for line in outcome.stdout.splitlines() if line.startswith("| `")]
    assert rows == list(PRETRAINING)
