"""The program for a GPU in its CPU form: it runs where little is installed, and notices a number that differs."""

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

ROOT = Path(__file__).resolve().parents[3]
BLOCKED = (
    *("ray", "mlflow", "faiss", "optuna", "bm25s", "streamlit", "grpc", "Stemmer", "ir_measures", "pytrec_eval"),
    *("sklearn", "sentence_transformers", "sentencex", "sqlalchemy", "plotly", "matplotlib"),
    "charset_normalizer",
)
"""What a machine with a GPU may lack."""
PROGRAM = """
import runpy, sys
sys.modules.update(dict.fromkeys({blocked!r}))
sys.argv[1:] = ["--cpu"]
runpy.run_module("tests.gpu", run_name="__main__", alter_sys=True)
"""


def test_all_parts_run_without_a_gpu_and_without_ray_or_faiss() -> None:
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM.format(blocked=BLOCKED)]
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
