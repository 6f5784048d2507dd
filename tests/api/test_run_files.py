"""Another tool's ranked lists through the Python API, beside the scores of a run."""

import shutil
from pathlib import Path

import pytest

import midmask


@pytest.fixture(scope="module")
def bm25(run: midmask.Run) -> midmask.Scores:
    return midmask.evaluate("bm25", run, split="test")


@pytest.fixture
def file(bm25: midmask.Scores, tmp_path: Path) -> Path:
    copy = tmp_path / "other.trec.gz"
    shutil.copy((bm25.artifact.place / "runs" / "texts.test.trec.gz").local(), copy)
    return copy


def test_a_run_file_has_scores_like_any_system(run: midmask.Run, bm25: midmask.Scores, file: Path) -> None:
    """On the queries that were drawn for the run's training."""
    other = midmask.evaluate_run(file, run, split="test")
    assert (other.system, other.corpus, other.split) == ("other", "texts", "test")
    assert other.measures == bm25.measures and other.table.equals(bm25.table)
    assert "other: a run file of" in str(other)
    (row,) = midmask.compare([other, bm25], measures=["RR@10"]).result.comparisons["RR@10"]
    assert row.difference == 0 and row.p == 1
    shallow = midmask.evaluate_run(file, run, split="test", name="first", depth=1, measures=["R@5"])
    assert shallow.system == "first" and shallow["R@5"] == pytest.approx(
        midmask.evaluate("bm25", run, split="test", measures=["R@1"])["R@1"]
    )
