"""A sweep on a Ray with GPUs by name only: trials train as groups of Ray Train, and find what one process finds."""

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from midmask.tracking.reading import read_runs
from tests.support.benchmark.tiny import TWO_TRIALS, write_collection
from tests.support.cluster.head import head
from tests.support.jobs.running import JOBS, run_job

FLAGS = ["--workers", "1", "--workers-per-training", "1"]
"""One trial after another, so that the same one is behind."""


def sweep_of(home: Path) -> list[dict[str, Any]]:
    """The points of the sweep's result, without what they cost."""
    (path,) = (home / "store" / "sweep").glob("*/sweep.json")
    return [
        {name: value for name, value in point.items() if name != "costs"}
        for point in json.loads(path.read_text())["points"]
    ]


def executors(home: Path) -> dict[str, set[str]]:
    """Step of a run -> where its trainings ran."""
    ran: dict[str, set[str]] = {}
    for run in read_runs(f"sqlite:///{home}/mlflow.db"):
        ran.setdefault(run.tags["midmask.step"], set()).add(run.tags["midmask.executor"])
    return ran


@pytest.mark.timeout(900)
def test_trials_on_gpus_are_groups_and_equal_to_those_in_a_process(ray_local, tmp_path, monkeypatch) -> None:
    project, corpus = tmp_path / "project", write_collection(tmp_path / "words")
    shutil.copytree(JOBS, project / "jobs")
    (project / "pyproject.toml").touch()
    (project / "search_spaces").mkdir()
    (project / "search_spaces" / "mask_ratio.yaml").write_text(yaml.safe_dump(TWO_TRIALS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", json.dumps({"GPU": 2}))
    submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--", "jobs/sweep_mask_ratio.py"]
    with contextlib.chdir(project), head(CPU=2) as environment:
        done = subprocess.run([*submit, "--corpus", corpus, *FLAGS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert executors(project)["trial"] == {"ray train"}
    trials = [
        run.tags["midmask.status"]
        for run in read_runs(f"sqlite:///{project}/mlflow.db")
        if run.tags["midmask.step"] == "trial"
    ]
    assert sorted(trials) == ["finished", "pruned"]

    space = project / "search_spaces" / "mask_ratio.yaml"
    (tmp_path / "one").mkdir()
    inside = run_job("sweep", "--space", str(space), "--corpus", corpus, *FLAGS, home=tmp_path / "one")
    assert inside.code == 0, inside.err[-2000:]
    assert executors(tmp_path / "one")["trial"] == {"process"}
    assert sweep_of(project) == sweep_of(tmp_path / "one")
