"""Rows from a real store, and entries of them: seeds of one system, what tells systems apart, and their notes."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from midmask.identity import Config, is_runtime
from midmask.leaderboard.entries import entries, field_kind
from midmask.leaderboard.rows import CollectionSplit, measure_names, rows
from midmask.leaderboard.surfaces import sweep_surface, sweeps
from midmask.recipes import RECIPES
from midmask.tracking import TrackedRow, read_runs
from tests.support.dashboards import compared, tracked

DEV = CollectionSplit("squad", "dev", compared.COLLECTION, len(compared.QUERIES))


def test_seeds_are_one_entry_with_mean_and_spread() -> None:
    found = {entry.recipe: entry for entry in entries(rows(compared.tracked_rows()))}
    assert set(found) == set(compared.LEVELS)
    means = [np.mean([*compared.values("retromae", seed, "nDCG@10").values()]) for seed in compared.SEEDS]
    value = found["retromae"].value(DEV, "nDCG@10")
    assert value is not None and value.seeds == 3
    assert (value.mean, value.spread) == (pytest.approx(np.mean(means)), pytest.approx(np.std(means, ddof=1)))
    single = found["bm25"].value(DEV, "nDCG@10")
    assert single is not None and single.spread is None
    assert found["none"].value(DEV, "AP") is None and found["none"].value(DEV._replace(split="test"), "nDCG@10") is None


def test_what_tells_systems_apart() -> None:
    run = compared.tracked_rows()[0]
    assert len(entries(rows([run, compared.changed(run, stages__0__train__seed="7")]))) == 1
    assert len(entries(rows([run, compared.changed(run, pretrain__micro_batch="4")]))) == 1
    longer = compared.changed(run, tokens__max_length="96")
    assert [entry.note for entry in entries(rows([run, longer]))] == ["passage tokens 48", "passage tokens 96"]
    trial = compared.tagged(run, step="trial")
    other = compared.tagged(run, protocol="splade")
    assert len(entries(rows([run, trial, other]))) == 3
    many = [compared.changed(run, **{f"p{at}": str(number) for at in range(5)}) for number in range(3)]
    names = [entry.name for entry in entries(rows(many))]
    assert len(set(names)) == 3 and all("2 more" in name for name in names)
    bm25 = compared.tracked_rows()[-1]
    files = [compared.changed(compared.tagged(bm25, representation="run file"), run__digest=digest) for digest in "ab"]
    assert [entry.note for entry in entries(rows(files))] == ["digest a", "digest b"], (
        "another tool's BM25 is no BM25 here"
    )
    assert len(entries(rows([bm25, compared.changed(bm25, tokens__max_length="96")]))) == 1, "BM25 has no such settings"


def test_of_runs_with_the_same_seeds_the_newest_counts() -> None:
    run = compared.tracked_rows()[0]
    before = replace(compared.changed(run, older=3), metrics=dict.fromkeys(run.metrics, 0.1))
    (entry,) = entries(rows([run, before]))
    value = entry.value(DEV, "nDCG@10")
    assert value is not None and (value.mean, value.seeds) == (run.metrics["squad/dev/nDCG_at_10"], 1)


def test_all_runtime_fields_and_seeds_are_known() -> None:
    """Of every recipe: a new runtime field must not split the seeds of a system."""

    def leaves(config: Config, path: str = "") -> list[tuple[str, bool]]:
        found = []
        for name in type(config).model_fields:
            value, own = getattr(config, name), f"{path}{name}"
            inner = enumerate(value) if isinstance(value, tuple | list) else ()
            if isinstance(value, Config):
                found += leaves(value, f"{own}.")
            elif nested := [(at, item) for at, item in inner if isinstance(item, Config)]:
                found += [leaf for at, item in nested for leaf in leaves(item, f"{own}.{at}.")]
            else:
                found.append((own, is_runtime(config, name)))
        return found

    every = {leaf for recipe in RECIPES for leaf in leaves(RECIPES[recipe]())}
    assert {path for path, runtime in every if runtime} == {
        path for path, _ in every if field_kind(path) == "without effect" and path != "evaluation.split"
    }
    assert {"pretrain.seed", "stages.0.train.seed"} <= {path for path, _ in every if field_kind(path) == "seed"}
    assert field_kind("stages.0.mine.seed") == field_kind("corpus.split_seed") == "setting"


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
