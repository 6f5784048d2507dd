"""The Sweep page shows every trial with its state, and a verdict for each split."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from midmask.tracking.reading import TrackedRow, read_runs
from midmask.tracking.runs import Tracker
from tests.support.dashboards import swept, tracked
from tests.support.dashboards.page import captions, page, table


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> tuple[str, list[TrackedRow]]:
    """A finished sweep with its file, and one that has none."""
    home = tmp_path_factory.mktemp("swept")
    shutil.copy(empty_store, home)
    uri = f"sqlite:///{home}/mlflow.db"
    with Tracker(uri, home, tracked.QUICK) as tracker:
        swept.track(tracker)
        plain = tracked.sweep(tracker)
        lost = tracker.run("lost", tags=tracked.tags("trial", "retromae", "lost"), params={}, parent=plain)
        lost.finish("failed")
        tracker.run("alive", tags=tracked.tags("trial", "retromae", "alive"), params={}, parent=plain)
        tracker.find("none", step="none")  # waits until all is sent
        return uri, read_runs(uri)


def named(store: tuple[str, list[TrackedRow]], *, plain: bool) -> AppTest:
    """The page of the sweep without a file (`plain`) or of the other."""
    uri, runs = store
    left_out = "topn" if plain else "sweep_mask_ratio"
    return page("sweep", [run for run in runs if left_out not in run.name], uri=uri)


def test_every_point_is_listed_the_best_first_and_a_pruned_one_last(store: tuple[str, list[TrackedRow]]) -> None:
    (shown,) = named(store, plain=False).dataframe
    assert len(shown.value) == len(swept.POINTS) + 1
    *values, pruned = shown.value["nDCG@10"].tolist()
    assert values == sorted(values, reverse=True) and np.isnan(pruned)
    against = shown.value["Against the best on dev"].tolist()
    assert (against[0], against[-1]) == ("the best", "pruned at 0.1000")
    assert shown.value["MLflow"].dropna().str.contains("/#/experiments/").sum() == 2, (
        "of the points whose runs are known"
    )


def test_a_sweep_without_a_file_leads_to_mlflow(store: tuple[str, list[TrackedRow]]) -> None:
    assert "has no result" in named(store, plain=True).info[0].value


def test_both_splits_have_their_own_verdict(store: tuple[str, list[TrackedRow]]) -> None:
    """Within the noise on dev, and clearly worse on test: neither stands for the other."""
    app = named(store, plain=False)
    best, floor = table(app, "comparison")
    assert best["Verdict on dev"] == ":gray[≈ not significant]" and best["Verdict on test"] == ":red[**▼ worse**]"
    assert [value for head, value in best.items() if "nDCG@10" in head] == ["0.5250", "0.4350"]
    assert best["test, to none: 95% interval, p"] == ":red[-0.0885] :small[:gray[-0.1185 … -0.0585, p 1.3e-05]]"
    assert floor["System"] == "none" and floor["Verdict on test"] == "—"
    assert "61 dev queries" in captions(app) and "on 93 queries" in captions(app)


def test_the_answer_comes_first_and_then_its_charts(store: tuple[str, list[TrackedRow]]) -> None:
    app = named(store, plain=False)
    assert "is \\*not\\* distinguishable" in app.main[0].value, "the sentence stands above all charts, as text"
    figures = [json.loads(one.proto.spec) for one in app.get("plotly_chart")]
    titles = [one["layout"]["xaxis"].get("title", {}).get("text") for one in figures]
    assert titles == ["CLS width", "bytes per passage"]
