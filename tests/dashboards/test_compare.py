"""The Compare page tells sign and significance by words and marks, and its colours agree with them."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.leaderboard.rows import LeaderboardRow
from tests.support.dashboards import compared
from tests.support.dashboards.page import captions, page, table

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
    base = app.selectbox(key="base")
    base.set_value(next(name for name in base.options if name.startswith("bm25"))).run()
    app.multiselect(key="runs").set_value(app.multiselect(key="runs").options).run()
    heads, lines = table(app, "standings")
    at = [head.split("|")[0] for head in heads].index("Verdict")
    told = {line[0].split(" · ")[0]: line for line in lines}
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
        assert line[-1] == f"{len(compared.QUERIES)}|num"
    assert stats.t.sf(0.05 / (0.05 / 60**0.5), 59) < 0.001, "of clear differences the test can be sure"
    assert "Holm" in captions(app)
