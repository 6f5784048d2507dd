"""Rows of a store and entries of them, names by which pages ask, order, bold and means against plain comparisons."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from midmask.core.config import Config, flatten, is_runtime
from midmask.leaderboard.board import HOURS, Board, View, board_of, table_of
from midmask.leaderboard.entries import (
    LABELS,
    SEEDS,
    WITHOUT_EFFECT,
    Entry,
    Marks,
    entries,
    field_kind,
)
from midmask.leaderboard.rows import CollectionSplit, LeaderboardRow, measure_names, rows, sweeps
from midmask.recipes import RECIPES
from midmask.tracking.reading import TrackedRow, read_runs
from tests.support.dashboards import compared, tracked
from tests.support.dashboards.browser import ROOT
from tests.support.tracked import is_foreign

DEV = compared.DEV


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
    assert [entry.note for entry in entries(rows([run, longer]))] == ["tokens.max_length=48", "tokens.max_length=96"]
    trial = compared.tagged(run, step="trial")
    other = compared.tagged(run, protocol="splade")
    assert len(entries(rows([run, trial, other]))) == 3
    many = [compared.changed(run, **{f"p{at}": str(number) for at in range(5)}) for number in range(3)]
    names = [entry.name for entry in entries(rows(many))]
    assert len(set(names)) == 3 and all("2 more" in name for name in names)
    bm25 = compared.tracked_rows()[-1]
    files = [compared.changed(compared.tagged(bm25, representation="run file"), run__digest=digest) for digest in "ab"]
    assert [entry.note for entry in entries(rows(files))] == ["run.digest=a", "run.digest=b"], (
        "they are no BM25 of ours"
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


def test_one_row_per_finished_run_corpus_and_split_and_a_sweep_by_its_trials(uri: str, tmp_path: Path) -> None:
    sweep, runs = tracked.everything(uri, tmp_path), read_runs(uri)
    assert [run.run_id for run in sweeps(runs)] == [sweep]
    found = [row for row in rows(runs) if not row.trial]
    values = {(row.recipe, row.place.corpus, row.place.split): row.measures["nDCG@10"] for row in found}
    expected = {}
    for (recipe, _), (dev, test) in tracked.SYSTEMS.items():
        expected |= {(recipe, "pydocs", "dev"): dev, (recipe, "pydocs", "test"): test}
    assert values == expected | {("BM25", "cranfield", "dev"): 0.3812}
    assert len(found) == len(values), "a cached run makes no second row, a failed one none"
    (mlm,) = [row for row in found if (row.tag("objective"), row.place.split) == ("mlm", "test")]
    assert (mlm.seed, mlm.tag("fingerprint"), mlm.run.parent_id, mlm.split_made_here) == ("3", "e-mlm", sweep, False)
    assert mlm.measures == pytest.approx({"nDCG@10": 0.5990, "RR@10": 0.5490, "R(rel=2)@100": 0.7990})
    assert {row.place.corpus for row in found if row.split_made_here} == {"cranfield"}
    assert measure_names(found) == ["nDCG@10", "RR@10", "R(rel=2)@100"], "in the field's order"


PLACES = ("platform/midmask/leaderboard", "platform/midmask/pages")


def test_settings_that_the_board_and_the_pages_ask_for_by_name_exist() -> None:
    """Endings of seeds and of runtime fields; literals in `params.get("…")`, `params["…"]` and `param(run, "…")`."""
    known = {f".{path}" for name in RECIPES for path in flatten(RECIPES[name]())}
    asks = re.compile(r"""params\.get\(\s*"([^"]+)"|params\["([^"]+)"\]|\bparam\(\w+, "([^"]+)"\)""")
    files = [path for place in PLACES for path in (ROOT / place).rglob("*.py") if not is_foreign(path)]
    asked = [next(filter(None, found)) for path in files for found in asks.findall(path.read_text("utf-8"))]
    assert asked, "the expression above finds what pages ask for"
    names = {*SEEDS, *WITHOUT_EFFECT, *asked}
    assert not [name for name in names if not any(path.endswith(f".{name}") for path in known)]


PLACE = CollectionSplit("squad", "dev", "c0ffee", 60)
MEASURES = ("nDCG@10", "RR@10")
BEGAN = datetime(2026, 11, 21, tzinfo=UTC)


def row(recipe: str, number: int, values: dict[str, float], costs: dict[str, float]) -> LeaderboardRow:
    tags = {f"midmask.{name}": value for name, value in {**labels(recipe), "seed": str(number)}.items()}
    started, metrics = BEGAN + timedelta(minutes=number), {f"cost/{name}": value for name, value in costs.items()}
    ids = (f"{recipe}{number}", "1", recipe, None, "finished")
    return LeaderboardRow(TrackedRow(*ids, started, started, tags, {}, metrics), PLACE, values)


def entry(recipe: str, rows: Sequence[LeaderboardRow], note: str = "") -> Entry:
    return Entry(labels(recipe), note, False, {PLACE: tuple(rows)})


def labels(recipe: str) -> dict[str, str]:
    return dict(zip(LABELS, (recipe, "corpus", "dense", "p", "tiny"), strict=True))


def board(found: Sequence[Entry]) -> Board:
    return board_of(found, View({PLACE: "squad dev"}, MEASURES, True), lambda shown: Marks())


values = some.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
measured = some.fixed_dictionaries(dict.fromkeys(MEASURES, values | some.none()))


@given(some.lists(measured, min_size=1, max_size=7))
@settings(max_examples=30)
def test_no_line_stands_above_a_better_one(given_systems: list[dict[str, float | None]]) -> None:
    """Without a value: below all that have one."""
    told = [{name: value for name, value in own.items() if value is not None} for own in given_systems]
    shown = board([entry(f"s{at}", [row(f"s{at}", at, own, {})]) for at, own in enumerate(told)])
    assert len(shown.systems) == (len(told) if any(told) else 0)
    for above, below in pairwise(shown.systems.values()):
        for column in shown.columns:
            first, second = (one.value(*column[1:]) for one in (above, below))
            assert first is not None or second is None
            if first != second:
                assert second is None or first.mean > second.mean  # type: ignore[union-attr]
                break


def test_an_index_recall_has_a_column_where_a_system_has_one() -> None:
    exact = entry("exact", [row("exact", 0, {"nDCG@10": 0.5}, {"train_seconds": 1.0})])
    assert not [head for head in table_of(board([exact])) if "recall" in head]
    shown = board([exact, entry("near", [row("near", 0, {"nDCG@10": 0.25}, {"index_recall_at_10": 0.75})])])
    assert table_of(shown)["Index recall@10"].fillna(0).tolist() == [0, 0.75]


@given(some.lists(values, min_size=1, max_size=6), some.lists(some.integers(-4, 4), min_size=6, max_size=6))
def test_bold_are_the_highest_and_those_that_rounding_alone_tells_from_it(found, last_bits) -> None:
    """Sums in another order differ in the last bit; a tenth of a billionth is a difference."""
    noisy = [value + 1e-13 * bits for value, bits in zip(found, last_bits, strict=False)]
    almost = max(noisy) - 1e-10
    systems = [entry(f"s{at}", [row(f"s{at}", 0, {"nDCG@10": value}, {})]) for at, value in enumerate([*noisy, almost])]
    shown = board(systems)
    best = {one.recipe: shown.is_best(one, shown.ranked) for one in shown.systems.values()}
    assert [best[f"s{at}"] for at in range(len(found))] == [value == max(found) for value in found]
    assert not best[f"s{len(found)}"]


@given(some.lists(some.floats(0, 1e6), min_size=1, max_size=5))
def test_a_cost_is_the_mean_over_the_runs_each_once(seconds: list[float]) -> None:
    rows = [row("s", at, {"RR@10": 0.5}, {"train_seconds": one}) for at, one in enumerate(seconds)]
    test = PLACE._replace(split="test")
    own = Entry(labels("s"), "", False, {PLACE: tuple(rows), test: tuple(rows[:1])})
    assert own.cost("train_seconds", [PLACE, test]) == pytest.approx(fmean(seconds))
    assert own.cost("gpu_hours", [PLACE]) is None
    assert board([own]).cost(own, HOURS) == pytest.approx(fmean(seconds) / 3600)
