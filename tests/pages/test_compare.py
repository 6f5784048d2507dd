"""The Compare page tells sign and significance by words and marks, and its colours agree with them."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from midmask.leaderboard.rows import LeaderboardRow
from tests.support.dashboards import compared
from tests.support.dashboards.page import captions, html, page, table

SHIFTS = {"dupmae": 0.05, "retromae": 0.0, "none": -0.05}
"""How far a system's values lie from those of BM25, on average."""


def shifted(noise: float) -> Callable[[LeaderboardRow], pa.Table]:
    """Values per query whose paired differences to BM25 have this standard deviation."""

    def values(row: LeaderboardRow) -> pa.Table:
        base = np.linspace(0.1, 0.8, len(compared.QUERIES))
        drawn = np.random.default_rng(len(row.recipe)).normal(0, noise, len(base))
        own = base + (SHIFTS[row.recipe] + drawn - drawn.mean() if row.recipe in SHIFTS else 0)
        return compared.per_query({"nDCG@10": dict(zip(compared.QUERIES, own.tolist(), strict=True))})

    return values


@pytest.mark.parametrize("noise", [0.05, 2.0], ids=["clear differences", "noise"])
def test_gain_loss_and_nothing_are_told_apart_without_colour(noise: float) -> None:
    runs = [run for run in compared.tracked_rows() if run.run_id.endswith("-0")]
    systems = ["dupmae", "retromae", "none"]
    app = page("compare", runs, per_query=shifted(noise), measure="nDCG@10", base="bm25", systems=systems)
    lines = {name_in(line): line for line in table(app, "standings")}
    assert set(lines) == set(SHIFTS)
    for system, line in lines.items():
        told, verdict = line["Difference"], line["Verdict"]
        difference = float(told.partition("[")[2].rstrip("]"))
        assert difference == pytest.approx(SHIFTS[system], abs=1e-4)
        if noise > 1 or system == "retromae":
            assert verdict == ":gray[≈ not significant]"
        else:
            assert verdict == (":green[**▲ better**]" if difference > 0 else ":red[**▼ worse**]")
        assert told.partition("[")[0] == verdict.partition("[")[0], "the number has the colour of its verdict"
        assert sum(line[kind] for kind in ("Wins", "Losses", "Ties")) == len(compared.QUERIES)


def name_in(line: dict[str, Any]) -> str:
    """The system of a line, whose name is a link."""
    return str(line["System"]).partition("]")[0].lstrip("[")


def test_seeds_are_one_system_and_those_without_values_are_named_not_offered() -> None:
    def values(row: LeaderboardRow) -> pa.Table | None:
        return None if row.recipe == "retromae" else compared.per_query_of(row)

    app = page("compare", compared.tracked_rows(), per_query=values)
    assert app.selectbox(key="base").options == ["none", "dupmae", "bm25"]
    lines = table(app, "standings")
    expected = {
        name: np.mean([compared.values(name, seed, "nDCG@10")[q] for seed in seeds for q in compared.QUERIES])
        for name, seeds in (("dupmae", compared.SEEDS), ("bm25", (0,)))
    }
    assert [name_in(line) for line in lines] == ["dupmae", "bm25"]
    means = [float(line["nDCG@10"].partition(" ± ")[0]) for line in lines]
    assert means == pytest.approx([*expected.values()], abs=1e-4)
    assert "1 systems whose runs keep no values per query (retromae)" in captions(app)
    assert "over seeds (none 3, dupmae 3, bm25 1)" in captions(app) and not app.warning


@pytest.mark.parametrize("query", ["", "q07", "no such"])
def test_one_query_is_shown_alone_and_none_asked_for_are_those_that_differ_most(query: str) -> None:
    app = page("compare", compared.tracked_rows(), per_query=shifted(0.05), query=query)
    found = re.findall(r'data-query="([^"]+)"', html(app))
    assert len(found) == 5 if not query else found == ([query] if query == "q07" else [])
    assert (query == "no such") == any("Query no such is none" in one.value for one in app.info)


def test_the_newest_collection_comes_first_and_of_its_splits_dev() -> None:
    now = compared.tracked_rows()
    older = [compared.tagged(compared.changed(run, older=9), x="1") for run in now]
    metrics = [{key.replace("squad", "nq"): value for key, value in run.metrics.items()} for run in older]
    older = [replace(run, metrics=own) for run, own in zip(older, metrics, strict=True)]
    trial = replace(compared.tagged(older[0], step="trial"), started=now[0].started + timedelta(days=1))
    app = page("compare", [trial, *compared.tracked_rows("test"), *now, *older], per_query=shifted(0.05))
    assert app.selectbox(key="place").options == ["squad dev", "squad test", "nq dev"]
