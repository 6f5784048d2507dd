"""The main job whole, in miniature: killed in the middle, submitted again, and submitted once more when it is done."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest

from midmask.leaderboard.rows import rows
from midmask.tracking import read_runs

JOB = Path(__file__).resolve().parents[2] / "jobs" / "sweep_mask_ratio.py"
SMALL = ["--search", "tpe", "--trials", "4", "--set", "pretrain.steps=16", "--set", "stages.0.train.steps=12"]


def start(home: Path, corpus: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "MIDMASK_HOME": str(home), "OMP_NUM_THREADS": "1"}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(JOB), "--corpus", corpus, *SMALL]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def kill_whole(process: subprocess.Popen[str]) -> None:
    """The driver and all it started, at once, as a machine that loses power."""
    family = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
    for pid in family:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def finished_points(home: Path) -> list[tuple[float, ...]]:
    """Parameters of every finished trial; empty before the study is there."""
    path = home / "store" / "optuna.db"
    if not path.exists():
        return []
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    names = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=names[0], storage=storage).trials if names else []
    return [tuple(trial.params.values()) for trial in trials if trial.state.name == "COMPLETE"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_is_killed_goes_on_and_is_then_cached(tmp_path: Path, data: Path) -> None:
    corpus = f"beir:{data / 'cranfield'}"
    doomed = start(tmp_path, corpus)
    deadline = time.monotonic() + 300
    while not finished_points(tmp_path) and time.monotonic() < deadline:
        assert doomed.poll() is None, doomed.communicate()
        time.sleep(0.5)
    kill_whole(doomed)
    before = finished_points(tmp_path)
    assert 1 <= len(before) < 4

    out, err = start(tmp_path, corpus).communicate(timeout=400)
    assert "only 40 dev queries nothing can be decided" in out, err[-2000:]
    assert "split made here" in out
    points = finished_points(tmp_path)
    assert points[: len(before)] == before and len(points) == len(set(points)) == 4

    runs = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    parents = [run for run in runs if run.tags["midmask.step"] == "sweep"]
    assert [run.tags["midmask.status"] for run in parents] == ["finished"]
    nested = [run for run in runs if run.parent_id == parents[0].run_id]
    systems = [run for run in nested if run.tags["midmask.step"] == "evaluate" and run.status == "finished"]
    assert sorted({run.tags["midmask.recipe"] for run in systems}) == ["bm25", "mlm", "none", "retromae"]
    assert all("cranfield/test/nDCG_at_10" in run.metrics for run in systems if run.tags["midmask.recipe"] != "bm25")

    again, err = start(tmp_path, corpus).communicate(timeout=120)
    assert again and out.endswith(again) and "nothing to compute" in err
    later = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert len(later) == len(runs) + 1
    assert later[0].status == "cached" and later[0].tags["midmask.cached_run"] == parents[0].run_id
    assert rows(later) == rows(runs)
