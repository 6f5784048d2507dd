"""A teacher is trained by workers and scores with actors as in one process."""

import shutil
from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place
from midmask.backend.shards import run_sharded
from midmask.backend.worker_group import train_on_ray
from midmask.teacher.score import SCORE, ScoreConfig
from midmask.teacher.teach import teach, teach_setup
from tests.support.derived.documents import files
from tests.support.teacher.lists import teaching, trace_of, write_inputs
from tests.support.training.runs import assert_same_run

SHORT = teaching(dropout=0.0, steps=6)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_inputs(Place(f"file://{tmp_path_factory.mktemp('lists')}"))


@pytest.fixture(scope="module")
def teacher(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    out = tmp_path_factory.mktemp("teacher")
    teach(SHORT, inputs, Place(str(out)), log=lambda done, values: None)
    return Artifact(Place(f"file://{out}"), {"fingerprint": "teacher"})


def test_two_workers_train_what_one_process_trains(
    inputs: dict[str, Artifact], teacher: Artifact, tmp_path: Path, ray_local: None
) -> None:
    """Without dropout, which is drawn by each worker for itself."""
    setup = teach_setup(SHORT, inputs)
    out = Place(f"file://{tmp_path}/out")
    result = train_on_ray(setup, out, workers=2, use_gpu=False, log=lambda done, values: None)
    alone = Path(teacher.place.uri.removeprefix("file://"))
    assert_same_run(trace_of(alone), trace_of(tmp_path / "out"), within=1e-4)
    assert result["workers"] == 2 and set(result["parts"]) == {"listwise"}
    assert (tmp_path / "out" / "model" / "model.safetensors").exists()


def test_actors_score_as_one_process_does_to_the_last_bit(
    inputs: dict[str, Artifact], teacher: Artifact, tmp_path: Path, ray_local: None
) -> None:
    """Of seven shards, two are there already."""
    config, sources = ScoreConfig(shard_queries=6), {**inputs, "teacher": teacher}
    result = SCORE(config, sources, Place(str(tmp_path / "here")))
    there = tmp_path / "there" / "scores"
    there.mkdir(parents=True)
    for name in ("00002.parquet", "00005.parquet"):
        shutil.copy(tmp_path / "here" / "scores" / name, there)
    assert run_sharded(SCORE, config, sources, Place(f"file://{tmp_path}/there"), actors=2) == result
    assert files(tmp_path / "there") == files(tmp_path / "here")
