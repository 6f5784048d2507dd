"""A teacher is trained by workers and scores with actors as in one process."""

import shutil
from pathlib import Path

import pytest

from midmask.artifact import Artifact, Place
from midmask.backend.shards import run_sharded
from midmask.teacher.score import SCORE, ScoreConfig
from midmask.teacher.teach import teach
from tests.support.derived.documents import files
from tests.support.teacher.lists import teaching, write_inputs

SHORT = teaching(dropout=0.0, steps=6)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return write_inputs(Place(f"file://{tmp_path_factory.mktemp('lists')}"))


@pytest.fixture(scope="module")
def teacher(inputs: dict[str, Artifact], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    out = tmp_path_factory.mktemp("teacher")
    teach(SHORT, inputs, Place(str(out)), log=lambda done, values: None)
    return Artifact(Place(f"file://{out}"), {"fingerprint": "teacher"})


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
