"""The shortest way through the house, on a real local Ray of two CPUs and 48 passages: a recipe from the corpus to its
measures. The rest of what Ray does is in tests/system.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from midmask.tracking.reading import read_runs
from tests.support.benchmark.tiny import ONE_STAGE, reciprocal_ranks, write_collection
from tests.support.jobs.running import run_job


def records(home: Path, step: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((home / "store" / step).glob("*/record.json"))]


def test_a_recipe_is_prepared_trained_mined_and_evaluated(ray_local: None, tmp_path: Path) -> None:
    collection = write_collection(tmp_path / "tiny")
    sets = [word for path, value in ONE_STAGE.items() for word in ("--set", f"{path}={value}")]
    asked = ["--corpus", collection, "--recipe", "retromae", "--protocol", "dpr", *sets]
    done = run_job("evaluate_retriever", *asked, "--split", "dev", home=tmp_path)
    assert done.code == 0, done.err[-2000:]
    assert [record["result"]["steps"] for record in records(tmp_path, "pretrain")] == [4]
    assert [record["result"]["steps"] for record in records(tmp_path, "finetune")] == [2]
    assert [record["result"]["negatives"] for record in records(tmp_path, "mine")] == [24], "one of BM25 for each query"
    printed = {row[done.table()[next(iter(done.table()))].index("RR@10")] for row in done.table().values()}
    for path in (tmp_path / "store" / "evaluate").iterdir():
        result = json.loads((path / "record.json").read_text())["result"]
        (run,) = (path / "runs").iterdir()
        assert result["measures"]["RR@10"] == pytest.approx(np.mean(reciprocal_ranks(run, result["split"])))
        assert f"{result['measures']['RR@10']:.4f}" in printed
    runs = read_runs(f"sqlite:///{tmp_path}/mlflow.db")
    assert {"pretrain", "mine", "finetune", "evaluate"} <= {run.tags["midmask.step"] for run in runs}
    assert all(run.status == "finished" for run in runs)
