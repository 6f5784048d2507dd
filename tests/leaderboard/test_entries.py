"""Rows from a real store, entries of them, and the names of settings by which pages ask."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import filterfalse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from midmask.evaluation.retriever import EvaluateConfig
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.identity import Config, flatten, is_runtime
from midmask.leaderboard.entries import SEEDS, WITHOUT_EFFECT, entries, field_kind
from midmask.leaderboard.lineage import TOLD
from midmask.leaderboard.rows import CollectionSplit, measure_names, rows
from midmask.leaderboard.surfaces import DECODER_RATIO, ENCODER_RATIO, sweep_surface, sweeps
from midmask.recipes import RECIPES
from midmask.retrieve.run_file import RunFileConfig
from midmask.retrieve.search_config import SearchConfig
from midmask.retrieve.timing import TimingConfig
from midmask.tracking import TrackedRow, read_runs
from tests.support.dashboards import compared, tracked
from tests.support.dashboards.browser import ROOT
from tests.support.queries.labelled import generating
from tests.support.tracked import is_foreign
from tests.support.unread import Unread

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


PLACES = ("platform/midmask/leaderboard", "dashboards")


@pytest.fixture(scope="module")
def recipes() -> list[Recipe]:
    return [RECIPES[name]() for name in RECIPES]


def steps_of(recipes: list[Recipe]) -> dict[str, list[Step]]:
    """Step name -> those of these recipes, of their evaluation, and of BM25's."""
    found: dict[str, list[Step]] = {}
    for recipe in recipes:
        planned = plan(recipe, Unread())
        config, indexed = EvaluateConfig(), EvaluateConfig(index="IVF8,Flat")
        fused = EvaluateConfig(bm25_share=0.5)
        targets = [planned.evaluation(config), planned.bm25_evaluation(config), planned.evaluation(fused)]
        if recipe.representation.lexical is None:
            targets.append(planned.evaluation(indexed))
        for target in targets:
            for step in target.upstream():
                found.setdefault(step.name, []).append(step)
    found["generator"] = [Step("generator", generating())]  # jobs' own steps, of no recipe
    found["read_run"] = [Step("read_run", RunFileConfig(split="test"))]
    found["time_searches"] = [Step("time_searches", TimingConfig(searches=(SearchConfig(),)))]
    return found


def test_lineage_asks_for_fields_of_the_steps_config(recipes: list[Recipe]) -> None:
    steps = steps_of(recipes)
    for step, paths in TOLD.items():
        assert steps[step], "no plan has this step"
        for path in paths:
            lacking = [one.config for one in steps[step] if not has(one.config.model_dump(mode="json"), path)]
            assert not lacking, f"{type(lacking[0]).__name__} has no {path}"


def has(config: Any, path: str) -> bool:
    for name in path.split("."):
        if config is None:
            return True  # a part that may be left out, as a teacher's backbone
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def test_endings_of_seeds_and_of_runtime_fields_are_those_of_some_setting(recipes: list[Recipe]) -> None:
    known = {f".{path}" for recipe in recipes for path in flatten(recipe)}
    lacking = [name for name in (*SEEDS, *WITHOUT_EFFECT) if not any(path.endswith(f".{name}") for path in known)]
    assert not lacking


def test_params_that_pages_ask_for_by_name_exist(recipes: list[Recipe]) -> None:
    known = {path for recipe in recipes for path in flatten(recipe)}
    assert {ENCODER_RATIO, DECODER_RATIO} <= known
    asked = list(names_asked())
    assert asked, "the expression below finds what pages ask for"
    assert not [name for name in asked if not any(path == name or path.endswith(f".{name}") for path in known)]


def names_asked() -> Iterator[str]:
    """Literal names in `params.get("…")`, `params["…"]` and `param(run, "…")`."""
    asks = re.compile(r"""params\.get\(\s*"([^"]+)"|params\["([^"]+)"\]|\bparam\(\w+, "([^"]+)"\)""")
    for place in PLACES:
        for path in filterfalse(is_foreign, (ROOT / place).rglob("*.py")):
            yield from (next(filter(None, found)) for found in asks.findall(path.read_text(encoding="utf8")))
