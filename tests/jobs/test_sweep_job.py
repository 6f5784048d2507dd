"""The main job whole, in miniature: killed in the middle, submitted again, and submitted once more when it is done."""

from pathlib import Path

import pytest

from midmask.leaderboard.rows import rows
from midmask.tracking import read_runs
from tests.support.jobs.sweeping import finished_points, killed_after_one_trial, start

SMALL = ["--search", "tpe", "--trials", "4", "--set", "pretrain.steps=16", "--set", "stages.0.train.steps=12"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_is_killed_goes_on_and_is_then_cached(tmp_path: Path, data: Path) -> None:
    job = ["sweep_mask_ratio", "--corpus", f"beir:{data / 'cranfield'}", *SMALL]
    before = killed_after_one_trial(tmp_path, *job)
    assert 1 <= len(before) < 4

    out, err = start(tmp_path, *job).communicate(timeout=400)
    assert "was measured on too few queries" in out, err[-2000:]
    assert "split made here" in out
    points = finished_points(tmp_path)
    assert points[: len(before)] == before and len(points) == len(set(map(str, points))) == 4

    runs = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    parents = [run for run in runs if run.tags["midmask.step"] == "sweep"]
    assert [run.tags["midmask.status"] for run in parents] == ["finished"]
    nested = [run for run in runs if run.parent_id == parents[0].run_id]
    systems = [run for run in nested if run.tags["midmask.step"] == "evaluate" and run.status == "finished"]
    assert sorted({run.tags["midmask.recipe"] for run in systems}) == ["bm25", "mlm", "none", "retromae"]
    assert all("cranfield/test/nDCG_at_10" in run.metrics for run in systems if run.tags["midmask.recipe"] != "bm25")

    again, err = start(tmp_path, *job).communicate(timeout=120)
    assert again and out.endswith(again) and "nothing to compute" in err
    later = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert len(later) == len(runs) + 1
    assert later[0].status == "cached" and later[0].tags["midmask.cached_run"] == parents[0].run_id
    assert rows(later) == rows(runs)
