"""What docs/python.md and the notebook show runs as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run_in_a_fresh_process(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process without MLflow and Ray's variables, in an empty folder, in which importing Ray fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MIDMASK_", "RAY_"))}
    blocked = "import sys; sys.modules['ray'] = sys.modules['mlflow'] = None\n"
    command = [sys.executable, "-c", blocked + program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def first_block(page: Path) -> str:
    found = re.search(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_block_trains_searches_and_compares(tmp_path: Path) -> None:
    done = run_in_a_fresh_process(first_block(DOCS / "python.md"), tmp_path)
    assert done.returncode == 0, done.stderr
    *hits, model = [line for line in done.stdout.splitlines() if line and line[0] not in "|B"]
    assert len(hits) == 3 and all(re.match(r"-?\d+\.\d\d  \w", hit) for hit in hits)
    assert "| a retromae |" in done.stdout and "| b bm25     |" in done.stdout
    assert (Path(model) / "model.safetensors").is_file() and Path(model).is_relative_to(tmp_path / "midmask-store")


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Its cells one after the other, as a kernel would run them, without what a notebook server needs."""
    cells = json.loads((DOCS / "first_steps.ipynb").read_text("utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = run_in_a_fresh_process(program, tmp_path)
    assert done.returncode == 0, done.stderr
