"""Rows from a real store, written the way jobs write."""

import shutil
from pathlib import Path

import pytest

from midmask.leaderboard.rows import measure_names, rows
from midmask.leaderboard.surfaces import sweep_surface, sweeps
from midmask.tracking import TrackedRow, read_runs
from tests.support.dashboards import tracked


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def uri(home: Path, empty_store: Path) -> str:
    shutil.copy(empty_store, home / "mlflow.db")
    return f"sqlite:///{home}/mlflow.db"


@pytest.fixture(scope="module")
def sweep(uri: str, home: Path) -> str:
    return tracked.everything(uri, home)


@pytest.fixture
def runs(uri: str, sweep: str) -> list[TrackedRow]:
    return read_runs(uri)


def test_one_row_per_finished_run_corpus_and_split(runs: list[TrackedRow], sweep: str) -> None:
    found = [row for row in rows(runs) if not row.trial]
    values = {(row.recipe, row.corpus, row.split): row.measures["nDCG@10"] for row in found}
    expected = {}
    for (recipe, _), (dev, test) in tracked.SYSTEMS.items():
        expected |= {(recipe, "pydocs", "dev"): dev, (recipe, "pydocs", "test"): test}
    assert values == expected | {("BM25", "cranfield", "dev"): 0.3812}
    assert len(found) == len(values), "a cached run makes no second row, a failed one none"
    (mlm,) = [row for row in found if (row.objective, row.split) == ("mlm", "test")]
    assert (mlm.seed, mlm.fingerprint, mlm.parent_id, mlm.split_made_here) == ("3", "e-mlm", sweep, False)
    assert mlm.measures == pytest.approx({"nDCG@10": 0.5990, "RR@10": 0.5490, "R(rel=2)@100": 0.7990})
    assert {row.corpus for row in found if row.split_made_here} == {"cranfield"}
    assert measure_names(found) == ["nDCG@10", "RR@10", "R(rel=2)@100"], "in the field's order"


def test_surface_of_a_sweep(runs: list[TrackedRow], sweep: str) -> None:
    assert [run.run_id for run in sweeps(runs)] == [sweep]
    points = sweep_surface(runs, sweep, "pydocs", "dev", "nDCG@10")
    got = {(point.encoder_ratio, point.decoder_ratio): point.value for point in points}
    assert got == {ratios: tracked.DEV[ratios] for ratios in tracked.RATIOS[1:]}, "the pruned trial has no measure"
    assert sweep_surface(runs, sweep, "pydocs", "test", "nDCG@10") == []
