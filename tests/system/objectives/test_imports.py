"""Objectives need torch and transformers alone: what a cluster, a tracker or an index needs is never imported."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCKED = (
    *("ray", "mlflow", "faiss", "pyarrow", "optuna", "streamlit", "plotly", "bm25s", "Stemmer", "grpc", "sqlalchemy"),
    *("requests", "ir_measures", "pytrec_eval", "scipy.stats", "sentence_transformers"),
)
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING, build_objective
from midmask.objectives.sample import pretraining_batch, sample_vocabulary

words = sample_vocabulary(300)
for name, method in PRETRAINING.items():
    objective = build_objective(method.Config(), build_backbone(BackboneConfig(), words, seed=0), words)
    drawn = objective.draw(pretraining_batch(method.Config(), words, rows=2, length=12))
    objective(drawn).total(objective.counts(drawn)).backward()
"""


def test_every_method_takes_a_step_without_ray_mlflow_or_pyarrow() -> None:
    """In a fresh process in which importing any of them fails."""
    command = [sys.executable, "-c", PROGRAM.format(blocked=BLOCKED)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert outcome.returncode == 0, outcome.stderr[-2000:]
