"""A user's space, without code, in miniature on a real Ray: conditions, several objectives, repeated seeds; killed in
the middle and submitted again.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from midmask.tracking import read_runs
from tests.support.benchmark.tiny import write_collection
from tests.support.cluster.spaces import DEPTH, SHORT, SIZE, check_repeated_seeds, check_words_and_bytes
from tests.support.jobs.sweeping import finished_points, killed_after_one_trial, start, summary_of


def records(home: Path, step: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in (home / "store" / step).glob("*/record.json")]


def swept(home: Path, space: dict[str, Any]) -> str:
    """The report of the space, killed once and resumed; every point is tried exactly once."""
    (home / "mine.yaml").write_text(yaml.safe_dump({**space, **SHORT}))
    job = ["sweep", "--space", str(home / "mine.yaml"), "--corpus", write_collection(home / "words")]
    before = killed_after_one_trial(home, *job)
    out, err = start(home, *job).communicate(timeout=600)
    points = list(map(str, finished_points(home)))
    assert set(map(str, before)) <= set(points), err[-2000:]
    assert len(points) == len(set(points))
    return out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_conditional_space_is_killed_and_goes_on(tmp_path: Path) -> None:
    out = swept(tmp_path, DEPTH)
    told = summary_of(tmp_path)
    layers = [point["parameters"].get("objective.decoder_layers") for point in told["points"]]
    assert sorted(layers, key=str) == [1, 2, None]
    for words in ("The probe at 0.5 of the pre-training", "distinguishable from", "too few queries"):
        assert words in out
    check_repeated_seeds(told)

    runs = read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (parent,) = [run for run in runs if run.tags["midmask.step"] == "sweep"]
    trials = {run.tags["midmask.fingerprint"] for run in runs if run.parent_id == parent.run_id}
    assert {point["run"] for point in told["points"]} <= trials
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    names = {file.path for folder in ("", "figures") for file in client.list_artifacts(parent.run_id, folder)}
    assert {"sweep.json", "report.md", "figures/points.png", "figures/lines.png"} <= names


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_words_are_cut_without_training_and_weighed_against_bytes(tmp_path: Path) -> None:
    out = swept(tmp_path, SIZE)
    told = summary_of(tmp_path)
    assert len(told["points"]) == 7 and "points are on the front of nDCG@10 and bytes_per_passage" in out
    assert len(records(tmp_path, "pretrain")) == 1, "one middle training for all"
    trained = [record for record in records(tmp_path, "finetune") if record["config"]["train"]["seed"] == 0]
    assert len(trained) == 3 + 1, "one fine-tuning a width, [CLS] alone, the baseline; none for N"

    check_words_and_bytes(told)
    assert [system["label"] for system in told["systems"]][-1] == "none"
    assert {"CLS", "8+4"} <= {system["label"] for system in told["systems"]}
