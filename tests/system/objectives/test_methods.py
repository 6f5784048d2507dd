"""Every method takes a step with finite gradients on every family of backbones, and needs torch and transformers alone:
what a cluster, a tracker or an index needs is never imported. Products in bf16 of many shapes do not fill the memory.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.encoders.methods import METHODS, REFUSED, assert_steps
from tests.support.encoders.models import VARIANTS, needs_bf16


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "bert"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_finite(method: str, variant: str) -> None:
    if (method, variant) not in REFUSED:
        assert_steps(method, variant)


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
from midmask.objectives.sample import pretraining_batch
from tests.support.objectives.texts import sample_vocabulary

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


PRODUCTS = """
import midmask, torch
from pathlib import Path
from torch.nn.functional import linear

torch.set_num_threads(1)
weight_OI = torch.rand(512, 256).bfloat16().requires_grad_()

def multiply(rows):
    linear(torch.rand(rows, 256).bfloat16().requires_grad_(), weight_OI).sum().backward()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

multiply(1000)
before = resident()
for rows in range(700, 1000):
    multiply(rows)
print(resident() - before)
"""


@needs_bf16
def test_products_of_many_shapes_are_not_all_kept() -> None:
    """Pages that a process grows by with 300 shapes of bf16 products, and with torch's own sizes of its caches."""

    def growth(**variables: str) -> int:
        own = {name: value for name, value in os.environ.items() if "CACHE_CAPACITY" not in name}
        done = subprocess.run([sys.executable, "-c", PRODUCTS], env=own | variables, capture_output=True, check=True)
        return int(done.stdout)

    large = growth(LRU_CACHE_CAPACITY="1024", ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")
    assert growth() < large / 3
