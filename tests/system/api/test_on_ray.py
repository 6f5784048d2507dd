"""The Python API against jobs on Ray, as docs/python.md and the notebook show it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import midmask
from tests.support.api import toy
from tests.support.jobs.running import run_job


@pytest.mark.slow
def test_the_jobs_give_the_same_numbers(corpus: midmask.Corpus, run: midmask.Run, tmp_path, ray_local: None) -> None:
    """Trained and evaluated again by the job, on Ray, in a store of its own."""
    settings = [f"--set={path}={value}" for path, value in toy.SETTINGS.items()]
    flags = ("--corpus", run.recipe.corpus.name, "--recipe", "retromae", "--seed", "5", *settings)
    done = run_job("run_recipe", *flags, "--workers", "1", home=tmp_path)
    assert done.code == 0, done.err
    for split in ("dev", "test"):
        own = midmask.evaluate(run, split=split)
        header, row = done.table()["texts"], done.table()[f"retromae, {split}"]
        assert dict(zip(header[1:], row[1:], strict=True)) == {name: f"{own[name]:.4f}" for name in header[1:]}


DOCS = Path(__file__).resolve().parents[3] / "docs"


def run_in_a_fresh_process(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process without MLflow and Ray's variables, in an empty folder, in which importing Ray fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MIDMASK_", "RAY_"))}
    blocked = "import sys; sys.modules['ray'] = sys.modules['mlflow'] = None\n"
    command = [sys.executable, "-c", blocked + program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_first_block_trains_searches_and_compares(tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", (DOCS / "python.md").read_text("utf-8"), re.DOTALL)
    done = run_in_a_fresh_process(block[1], tmp_path)
    assert done.returncode == 0, done.stderr
    hit, *_, model = done.stdout.splitlines()
    assert len(hit.split()) > 1
    assert "| a retromae |" in done.stdout and "| b bm25     |" in done.stdout
    assert (Path(model) / "model.safetensors").is_file() and Path(model).is_relative_to(tmp_path / "midmask-store")


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Its cells one after the other, as a kernel would run them, without what a notebook server needs."""
    cells = json.loads((DOCS / "first_steps.ipynb").read_text("utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = run_in_a_fresh_process(program, tmp_path)
    assert done.returncode == 0, done.stderr
