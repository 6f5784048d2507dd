"""A user's space, without code, in miniature on a real Ray: conditions, several objectives, repeated seeds; killed in
the middle and submitted again.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient

from midmask.tracking import read_runs
from tests.benchmark.tiny import write_collection
from tests.jobs.sweeping import finished_points, killed_after_one_trial, start, summary_of

SHORT = """
settings: {tokens.vocabulary_size: 300, pretrain.steps: 4, pretrain.batch_size: 8, stages.0.train.steps: 3,
  stages.0.train.batch_size: 8}
baselines: [none]
seeds: [0, 1]
"""

DEPTH = f"""
name: depth
recipe: retromae
search: grid
parameters:
  objective.decoding: {{values: [enhanced, basic]}}
  objective.decoder_layers: {{values: [1, 2], when: {{objective.decoding: basic}}}}
rungs: {{shares: [0.5], steps: 2, prune: false}}
trial_seeds: [0, 1]
{SHORT}"""

SIZE = f"""
name: size
recipe: dupmae
protocol: in_batch
search: grid
objectives: [{{measure: nDCG@10, mode: max}}, {{measure: bytes_per_passage, mode: min}}]
parameters:
  representation.lexical: {{values: [logits, null]}}
  representation.passage_terms: {{values: [16], when: {{representation.lexical: logits}}}}
  evaluation.passage_terms: {{values: [2, 4, 16], when: {{representation.lexical: logits}}, label: N}}
  representation.width: {{values: [8, 16], when: {{representation.lexical: logits}}}}
marks: {{"CLS": {{representation.lexical: null}}, "8+4": {{representation.width: 8, evaluation.passage_terms: 4}}}}
{SHORT}"""


def records(home: Path, step: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in (home / "store" / step).glob("*/record.json")]


def swept(home: Path, text: str) -> str:
    """The report of the space, killed once and resumed; every point is tried exactly once."""
    (home / "mine.yaml").write_text(text)
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
    for words in ("The probe at 0.5 of the pre-training", "distinguishable from", "only 12 dev queries"):
        assert words in out
    for point in told["points"]:
        assert len(point["seeds"]) == 2 and np.mean(point["seeds"]) == pytest.approx(point["values"]["nDCG@10"])
        assert len(point["probes"]) == 1 and point["complete"]
    spread = np.sqrt(np.mean([np.var(point["seeds"], ddof=1) for point in told["points"]]))
    assert told["noise_floor"]["seed_spread"] == pytest.approx(spread) and told["noise_floor"]["seed_degrees"] == 3

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

    values = [(point["values"]["nDCG@10"], point["values"]["bytes_per_passage"]) for point in told["points"]]
    beaten = [any(a >= x and b <= y and (a, b) != (x, y) for a, b in values) for x, y in values]
    assert [point["front"] for point in told["points"]] == [not one for one in beaten]
    by_words = {
        point["parameters"]["evaluation.passage_terms"]: point["costs"]["bytes_per_passage"]
        for point in told["points"]
        if point["parameters"].get("representation.width") == 8
    }
    for words, size in by_words.items():  # 32 bits and an index a word, of a vocabulary of 300 at most; two headers
        assert 4 * 8 + words * 4 < size < 4 * 8 + words * (32 + 9) / 8 + (128 + 64) / 48 + 1
    assert [system["label"] for system in told["systems"]][-1] == "none"
    assert {"CLS", "8+4"} <= {system["label"] for system in told["systems"]}

    for point in told["points"]:
        assert point["costs"]["search_ms_per_query"] > 0
