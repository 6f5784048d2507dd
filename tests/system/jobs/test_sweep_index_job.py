"""`sweep_index` as a job: its table, its tracked runs, and a second run that computes nothing."""

from pathlib import Path

from midmask.leaderboard.entries import entries
from midmask.leaderboard.rows import rows
from midmask.tracking import read_runs
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.running import run_job

POINTS = """
depth: 20
points:
  - {index: Flat}
  - {index: "IVF4,Flat", nprobe: 1}
  - {index: SQ8, rescore: 0}
"""
LABELS = ["Flat", "IVF4,Flat nprobe 1", "SQ8 rescore 0"]


def test_the_job_prints_the_table_tracks_it_and_computes_nothing_twice(ray_local: None, tmp_path: Path) -> None:
    (tmp_path / "points.yaml").write_text(POINTS)
    changes = {"tokens.vocabulary_size": 300, "stages.0.train.steps": 2, "stages.0.train.batch_size": 4}
    flags = [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]
    flags += ["--corpus", write_collection(tmp_path / "tiny"), "--recipe", "none"]
    flags += ["--indexes", str(tmp_path / "points.yaml")]
    first = run_job("sweep_index", *flags, home=tmp_path)
    assert first.code == 0, first.err
    assert list(first.table()) == ["index", *LABELS]
    again = run_job("sweep_index", *flags, home=tmp_path)
    assert again.code == 0 and again.table() == first.table()
    assert len(entries(rows(read_runs(f"sqlite:///{tmp_path}/mlflow.db")))) == len(LABELS)
