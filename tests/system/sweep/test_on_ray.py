"""A whole sweep on a real local Ray: two trials, one of which ends at its rung."""

import json
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from mlflow import MlflowClient

from midmask.tracking.reading import read_runs
from tests.support.benchmark.tiny import TWO_TRIALS, write_collection
from tests.support.disks import opens
from tests.support.jobs.running import run_job


def results(home: Path, step: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text())["result"] for path in (home / "store" / step).glob("*/record.json")]


def test_a_sweep_of_two_trials_ends_the_one_that_is_behind(ray_local: None, tmp_path: Path) -> None:
    space, collection = tmp_path / "two.yaml", write_collection(tmp_path / "words")
    space.write_text(yaml.safe_dump(TWO_TRIALS))
    with opens(tmp_path / "words", tmp_path / "words" / "qrels") as counts:
        done = run_job("sweep", "--space", str(space), "--corpus", collection, "--workers", "1", home=tmp_path)
    assert done.code == 0, done.err[-2000:]
    assert max(counts.values()) <= 10, "twice whole, by the plan and by prepare; the others look at the first rows"

    assert re.search(rf"\n\nmodel: {tmp_path}/store/finetune/\w+/model\n", done.out)
    assert re.search(r"\npictures: .* leaderboard\nnext: \S+ search .*/model --corpus=beir:.*\n$", done.out), done.out
    (log,) = (tmp_path / "store" / "logs").iterdir()
    assert "progress.details" in log.read_text() and "progress.details" not in done.err, "details are in the file alone"

    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/store/optuna.db")
    (name,) = optuna.get_all_study_names(storage)
    whole, behind = optuna.load_study(study_name=name, storage=storage).trials
    assert [whole.params, behind.params] == [{"tokens.query_length": 16}, {"tokens.query_length": 4}]
    assert behind.values[0] < whole.intermediate_values[1], "four tokens of a query tell less than all"
    assert sorted(result["steps"] for result in results(tmp_path, "pretrain")) == [2, 2, 4]
    (summary,) = (json.loads(path.read_text()) for path in (tmp_path / "store" / "sweep").glob("*/sweep.json"))
    best, other = summary["points"]
    assert best["complete"] and not other["complete"] and other["probes"] == behind.values and not other["values"]
    assert best["values"] == {"nDCG@10": pytest.approx(whole.values[0])}
    evaluated = {result["measures"]["nDCG@10"] for result in results(tmp_path, "evaluate")}
    assert {*behind.values, *whole.values, *whole.intermediate_values.values()} <= evaluated

    runs = read_runs(f"sqlite:///{tmp_path}/mlflow.db")
    assert all(run.ended is not None for run in runs)
    (parent,) = (run for run in runs if run.tags["midmask.step"] == "sweep")
    assert parent.tags["midmask.status"] == "finished"
    (read,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(parent.run_id).inputs.dataset_inputs
    assert json.loads(read.dataset.profile)["passages"] == 48, "also where the sweep itself prepares its collection"
    trials = [run for run in runs if run.tags["midmask.step"] == "trial"]
    assert sorted(run.tags["midmask.status"] for run in trials) == ["finished", "pruned"]
