"""`train_generator` as a job: planned and priced, trained and tracked, copied, and read as a source of queries."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.derived.generate import GenerateConfig
from midmask.queries.config import QueriesConfig
from midmask.queries.generator import ModelQueries
from midmask.queries.made import Passage
from tests.support.benchmark.tiny import write_collection
from tests.support.jobs.running import run_job

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]

SHORT = [
    *("--steps", "3", "--batch-size", "8"),
    *("--set", "tokens.vocabulary_size=300", "--set", "stages.0.train.threads=1"),
]


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_collection(tmp_path_factory.mktemp("labelled") / "tiny")


def test_a_dry_run_says_what_it_costs(collection: str, tmp_path: Path) -> None:
    done = run_job("train_generator", "--corpus", collection, *SHORT, "--dry-run", home=tmp_path)
    assert done.code == 0, done.err
    assert "3 steps x 8 rows = 24 rows" in done.out and "stages.0.train.learning_rate = 0.001" in done.out
    assert "tokens.titles = True" in done.out and "memory of a device in generator" in done.out
    assert not (tmp_path / "store").exists()


def test_a_folder_with_files_is_not_written_into(collection: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    done = run_job("train_generator", "--corpus", collection, "--out", str(tmp_path / "mine"), home=tmp_path)
    assert done.code == 2 and "there are files in it" in done.err and len(done.err.strip().splitlines()) == 1


def test_a_collection_without_train_queries_is_refused(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    lines = [json.dumps({"text": f"text number {n} of a few"}) for n in range(50)]
    (tmp_path / "texts" / "some.jsonl").write_text("\n".join(lines))
    done = run_job("train_generator", "--corpus", f"texts:{tmp_path}/texts", *SHORT, home=tmp_path)
    assert done.code == 2 and "the step generator needs" in done.err


@pytest.mark.slow
def test_it_trains_tracks_and_copies(ray_local: None, collection: str, tmp_path: Path) -> None:
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
