"""The main job whole, in miniature: with pruning; and killed, submitted again, and submitted once more when done."""

import json
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from mlflow import MlflowClient

from midmask.leaderboard.rows import rows
from midmask.tracking import read_runs
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.processes import finished_points, killed_after_one_trial, start
from tests.support.jobs.running import run_job
from tests.support.opens import opens

SMALL = ["--search", "tpe", "--trials", "4", "--set", "pretrain.steps=16", "--set", "stages.0.train.steps=12"]
SMALL += ["--set", "tokens.vocabulary_size=300"]

SPACE = {
    "name": "two", "recipe": "retromae", "search": "grid", "baselines": [], "seeds": [0],
    "parameters": {"tokens.query_length": {"values": [16, 4]}},
    "rungs": {"shares": [0.5], "steps": 2, "reduction": 2},
    "settings": {
        "tokens.vocabulary_size": 300, "pretrain.steps": 4, "pretrain.batch_size": 8, "pretrain.threads": 1,
        "stages.0.train.steps": 2, "stages.0.train.batch_size": 4, "stages.0.train.threads": 1,
    },
}  # fmt: skip


def records(home: Path, step: str) -> list[dict[str, Any]]:
    """The records of a step's artifacts."""
    return [json.loads(path.read_text()) for path in (home / "store" / step).glob("*/record.json")]


def test_a_sweep_of_two_trials_ends_the_one_that_is_behind(ray_local: None, tmp_path: Path) -> None:
    space, collection = tmp_path / "two.yaml", write_collection(tmp_path / "words")
    space.write_text(yaml.safe_dump(SPACE))
    with opens(tmp_path / "words", tmp_path / "words" / "qrels") as counts:
        done = run_job("sweep", "--space", str(space), "--corpus", collection, "--workers", "1", home=tmp_path)
    assert done.code == 0, done.err[-2000:]
    assert max(counts.values()) <= 7, "twice whole, by the plan and by prepare; the others look at the first rows"

    assert re.search(
        rf"\n\nmodel: ({tmp_path}/store/finetune/\w+/model)\n    from sentence_transformers import ", done.out
    )
    assert done.out.rsplit("\n\n", 1)[1].splitlines()[-1].startswith("make it again: ")
    (log,) = (tmp_path / "store" / "logs").iterdir()
    assert "trial 1 of 2" in log.read_text() and "trial 1 of 2" not in done.err, "details are in the file alone"

    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/store/optuna.db")
    (name,) = optuna.get_all_study_names(storage)
    whole, behind = optuna.load_study(study_name=name, storage=storage).trials
    assert [whole.params, behind.params] == [{"tokens.query_length": 16}, {"tokens.query_length": 4}]
    assert behind.values[0] < whole.intermediate_values[1], "two tokens of a query tell less than all"
    trained = sorted(record["result"]["steps"] for record in records(tmp_path, "pretrain"))
    assert trained == [2, 2, 4], "both to the rung, one to the end"
    (told,) = (json.loads(path.read_text()) for path in (tmp_path / "store" / "sweep").glob("*/sweep.json"))
    best, other = told["points"]
    assert best["complete"] and not other["complete"] and other["probes"] == behind.values and not other["values"]
    assert best["values"] == {"nDCG@10": pytest.approx(whole.values[0])}
    evaluated = {record["result"]["measures"]["nDCG@10"] for record in records(tmp_path, "evaluate")}
    assert {*behind.values, *whole.values, *whole.intermediate_values.values()} <= evaluated

    runs = read_runs(f"sqlite:///{tmp_path}/mlflow.db")
    assert all(run.ended is not None for run in runs)
    (parent,) = (run for run in runs if run.tags["midmask.step"] == "sweep")
    assert parent.tags["midmask.status"] == "finished"
    (read,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(parent.run_id).inputs.dataset_inputs
    assert json.loads(read.dataset.profile)["passages"] == 48, "also where the sweep itself prepares its collection"
    trials = [run for run in runs if run.tags["midmask.step"] == "trial" and run.parent_id == parent.run_id]
    assert sorted(run.tags["midmask.status"] for run in trials) == ["finished", "pruned"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_is_killed_goes_on_and_is_then_cached(tmp_path: Path) -> None:
    job = ["sweep_mask_ratio", "--corpus", write_collection(tmp_path / "words"), *SMALL]
    before = killed_after_one_trial(tmp_path, *job)
    assert 1 <= len(before) < 4

    out, err = start(tmp_path, *job).communicate(timeout=400)
    assert "was measured on too few queries" in out, err[-2000:]
    points = finished_points(tmp_path)
    assert points[: len(before)] == before and len(points) == len(set(map(str, points))) == 4

    runs = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    parents = [run for run in runs if run.tags["midmask.step"] == "sweep"]
    assert [run.tags["midmask.status"] for run in parents] == ["finished"]
    nested = [run for run in runs if run.parent_id == parents[0].run_id]
    systems = [run for run in nested if run.tags["midmask.step"] == "evaluate" and run.status == "finished"]
    assert sorted({run.tags["midmask.recipe"] for run in systems}) == ["bm25", "mlm", "none", "retromae"]
    assert all("words/test/nDCG_at_10" in run.metrics for run in systems if run.tags["midmask.recipe"] != "bm25")

    again, err = start(tmp_path, *job).communicate(timeout=120)
    assert again and out.endswith(again) and "already computed" in err
    later = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert len(later) == len(runs) + 1
    assert later[0].status == "cached" and later[0].tags["midmask.cached_run"] == parents[0].run_id
    assert rows(later) == rows(runs)
