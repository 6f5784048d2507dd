"""The Compare page tells sign and significance by words and marks, and its colours agree with them."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

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
    app = page("compare", runs, per_query=shifted(noise), measure="nDCG@10")
    assert app.selectbox(key="base").value == "none"
    app.selectbox(key="base").set_value("bm25").run()
    app.multiselect(key="systems").set_value(app.multiselect(key="systems").options).run()
    heads, lines = table(app, "standings")
    at = [head.split("|")[0] for head in heads].index("Verdict")
    told = {line[0].split("|")[0]: line for line in lines}
    assert set(told) == set(SHIFTS)
    for system, line in told.items():
        difference = float(line[at - 1].split("|")[0])
        assert difference == pytest.approx(SHIFTS[system], abs=1e-4)
        said, kind = line[at].rsplit("|", 1)
        if noise > 1 or system == "retromae":
            assert (said, kind) == ("≈ not significant", "quiet")
        else:
            assert (said, kind) == (("▲ better", "gain") if difference > 0 else ("▼ worse", "loss"))
        assert line[at - 1].endswith(kind), "the number has the colour of its verdict"
        assert sum(int(cell.split("|")[0]) for cell in line[-3:]) == len(compared.QUERIES)
    assert stats.t.sf(0.05 / (0.05 / 60**0.5), 59) < 0.001, "of clear differences the test can be sure"
    assert "Holm" in captions(app)


def test_seeds_are_one_system_and_those_without_values_are_named_not_offered() -> None:
    def values(row: LeaderboardRow) -> pa.Table | None:
        own = {name: compared.values(row.recipe, int(row.seed), name) for name in compared.MEASURES}
        return None if row.recipe == "retromae" else compared.per_query(own)

    app = page("compare", compared.tracked_rows(), per_query=values)
    assert app.selectbox(key="base").options == ["none", "dupmae", "bm25"]
    _, lines = table(app, "standings")
    expected = {name: np.mean([compared.values(name, seed, "nDCG@10")[q] for seed in seeds for q in compared.QUERIES])
                for name, seeds in (("dupmae", compared.SEEDS), ("bm25", (0,)))}  # fmt: skip
    assert [line[0].split("|")[0] for line in lines] == ["dupmae", "bm25"]
    assert [float(line[1].split("|")[0]) for line in lines] == pytest.approx([*expected.values()], abs=1e-4)
    said = captions(app)
    assert "Not offered: 1 systems whose runs keep no values per query (retromae)" in said
    assert "Values are means over 3 seeds (none, dupmae)." in said and not app.warning


@pytest.mark.parametrize("query", ["q07", "no such"])
def test_one_query_is_shown_alone_and_its_link_leads_to_it(query: str) -> None:
    app = page("compare", compared.tracked_rows(), per_query=shifted(0.05), query=query)
    found = re.findall(r'data-query="([^"]+)".*?<a href="([^"]+)"', html(app))
    if query == "no such":
        assert not found and "Query no such is none" in app.info[0].value
        app.button[0].click().run()
        found = re.findall(r'data-query="([^"]+)".*?<a href="([^"]+)"', html(app))
        assert len(found) == 5
    for name, address in found:
        assert parse_qs(unescape(address).removeprefix("?")) == {
            "place": ["squad dev"],
            "measure": ["nDCG@10"],
            "base": ["none"],
            "systems": ["dupmae", "retromae", "bm25"],
            "of": ["dupmae"],
            "query": [name],
        }
    assert query == "no such" or [name for name, _ in found] == [query]


def test_the_newest_collection_comes_first_and_of_its_splits_dev() -> None:
    now = compared.tracked_rows()
    older = [compared.tagged(compared.changed(run, older=9), x="1") for run in compared.tracked_rows()]
    older = [
        replace(run, metrics={key.replace("squad", "nq"): value for key, value in run.metrics.items()}) for run in older
    ]
    trial = replace(compared.tagged(older[0], step="trial"), started=now[0].started + timedelta(days=1))
    app = page("compare", [trial, *compared.tracked_rows("test"), *now, *older], per_query=shifted(0.05))
    assert app.selectbox(key="place").options == ["squad dev", "squad test", "nq dev"]


@pytest.mark.parametrize(("runs", "words"), [(0, "Nothing has been evaluated"), (1, "here is one")])
def test_too_few_systems_are_said(runs: int, words: str) -> None:
    app = page("compare", compared.tracked_rows()[:runs], per_query=shifted(0.05))
    assert words in app.info[0].value and not app.warning
