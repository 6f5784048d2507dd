"""Every method takes a step with finite gradients on every family of backbones, and needs torch and transformers alone:
what a cluster, a tracker or an index needs is never imported. Products in bf16 of many shapes do not fill the memory.

The program for a GPU in its CPU form: it runs where little is installed, and notices a number that differs.
"""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.objectives import FINETUNING, PRETRAINING
from tests.gpu import __main__ as program
from tests.gpu.cases import all_cases
from tests.support.encoders.methods import METHODS, REFUSED, assert_steps
from tests.support.encoders.models import VARIANTS, needs_bf16


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "bert"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_finite(method: str, variant: str) -> None:
    if (method, variant) not in REFUSED:
        assert_steps(method, variant)


ROOT = Path(__file__).resolve().parents[3]
LACKING = (
    *("ray", "mlflow", "faiss", "optuna", "bm25s", "streamlit", "grpc", "Stemmer", "ir_measures", "pytrec_eval"),
    *("sklearn", "sentence_transformers", "sentencex", "sqlalchemy", "plotly", "matplotlib"),
    "charset_normalizer",
)
"""What a machine with a GPU may lack."""
BLOCKED = (*LACKING, "pyarrow", "requests", "scipy.stats")
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


GPU_PROGRAM = """
import runpy, sys
sys.modules.update(dict.fromkeys({blocked!r}))
sys.argv[1:] = ["--cpu"]
runpy.run_module("tests.gpu", run_name="__main__", alter_sys=True)
"""


def test_all_parts_run_without_a_gpu_and_without_ray_or_faiss() -> None:
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GPU_PROGRAM.format(blocked=LACKING)]
    outcome = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=550)
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    rows = [line.strip("| ").split(" | ") for line in outcome.stdout.splitlines() if line.startswith("| ")]
    names = {name for name, *_, passed in rows if passed == "yes"}
    assert {name for kind in ("draw", "objective") for name in (f"{kind} mlm", f"{kind} generation")} <= names
    for method in (*PRETRAINING, *FINETUNING):
        assert any(name.startswith(f"objective {method}") for name in names)
    speeds = {(row[0], row[1]) for row in rows if row[0] in PRETRAINING and "%" in row[-1]}
    assert speeds == {*itertools.product(PRETRAINING, ("16", "32"))}
    assert {f"{recipe}, {protocol}" for recipe, protocol in program.SYSTEMS} <= {row[0] for row in rows}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_number_that_differs_on_the_device_fails_the_program(precision, monkeypatch, capsys) -> None:
    whole, other = itertools.islice(all_cases(), 2)

    def disturbed(where):  # type: ignore[no-untyped-def]
        found = dict(other.compute(where))
        return found | {"logits": found["logits"] * (1.5 if where.precision == precision else 1.0)}

    monkeypatch.setattr(program, "all_cases", lambda: [whole, other])
    assert program.main(["--cpu", "--part", "parity"]) == 0
    monkeypatch.setattr(program, "all_cases", lambda: [whole, replace(other, compute=disturbed)])
    assert program.main(["--cpu", "--part", "parity"]) == 1
    assert capsys.readouterr().out.count("**no**") == 1
