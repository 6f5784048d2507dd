"""`train_generator` as a job: planned and priced, trained and tracked, copied, and read as a source of queries."""

from pathlib import Path

from mlflow import MlflowClient

from midmask.derived.generate import GenerateConfig
from midmask.queries.config import QueriesConfig
from midmask.queries.generator import ModelQueries
from midmask.queries.made import Passage
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.running import run_job

SHORT = [
    *("--steps", "3", "--batch-size", "8"),
    *("--set", "tokens.vocabulary_size=300", "--set", "stages.0.train.threads=1"),
]


def test_it_trains_tracks_and_copies(ray_local: None, tmp_path: Path) -> None:
    collection = write_collection(tmp_path / "tiny")
    planned = run_job("train_generator", "--corpus", collection, *SHORT, "--dry-run", home=tmp_path)
    assert planned.code == 0 and "3 steps x 8 rows = 24 rows" in planned.out, planned.err
    assert "tokens.titles = True" in planned.out and "memory of a device in generator" in planned.out
    out = tmp_path / "generator"
    done = run_job("train_generator", "--corpus", collection, *SHORT, "--out", str(out), home=tmp_path)
    assert done.code == 0, done.err
    assert f"model:{out}" in done.out and done.table()["steps"] == ["3"]
    config = QueriesConfig(per_passage=1, generate=GenerateConfig(max_tokens=6))
    made = list(ModelQueries(str(out), config).queries([Passage("d0", "", "amber birch cedar")]))
    assert len(made) <= 1, "three steps teach it nothing, but it is read and writes"
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "midmask"]
    (run,) = client.search_runs([experiment.experiment_id], "tags.`midmask.step` = 'generator'")
    assert run.info.status == "FINISHED" and "generator/loss" in run.data.metrics
    assert run.data.params["stages.0.train.steps"] == "3", "the flags are fields, so a page can repeat the run"
    again = run_job("train_generator", "--corpus", collection, *SHORT, home=tmp_path)
    assert again.code == 0 and f"model:{tmp_path}/store/generator/" in again.out
