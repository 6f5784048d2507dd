"""A process of its own in which what a GPU machine lacks can't be imported."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCKED = (
    *("ray", "mlflow", "faiss", "optuna", "bm25s", "streamlit", "grpc", "Stemmer", "ir_measures", "pytrec_eval"),
    *("scipy", "sklearn", "sentence_transformers", "sentencex", "sqlalchemy", "plotly", "matplotlib"),
    "charset_normalizer",
)
PROGRAM = """
import runpy, sys
sys.modules.update(dict.fromkeys({blocked!r}))
sys.argv[1:] = {arguments!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program, as `python -m` runs it."""
    return run_text(PROGRAM.format(blocked=BLOCKED, arguments=list(arguments), module=module))


def run_text(text: str) -> subprocess.CompletedProcess[str]:
    """Python's code, with nothing blocked but what it blocks itself."""
    places = {"PYTHONPATH": os.pathsep.join([str(ROOT / "platform"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    command, variables = [sys.executable, "-c", text], {**os.environ, **places}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=550)
