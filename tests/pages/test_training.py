"""The Training page draws what there is and no more, groups runs, and tells what happened."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from midmask.tracking.reading import TrackedRow, read_runs
from midmask.tracking.runs import Tracker
from tests.support.dashboards import tracked
from tests.support.dashboards.page import captions, page, table

LOSSES = {"a": [4.0, 3.0, 2.0], "b": [5.0, 4.0, 1.0], "c": [9.0, 8.0, 7.0]}
RECIPES = {"a": "dupmae", "b": "dupmae", "c": "mlm"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> tuple[str, list[TrackedRow]]:
    """Three trainings of two recipes; one of them has a collapsed encoder. None waits for data."""
    home = tmp_path_factory.mktemp("trained")
    shutil.copy(empty_store, home)
    uri = f"sqlite:///{home}/mlflow.db"
    with Tracker(uri, home, tracked.QUICK) as tracker:
        for name, losses in LOSSES.items():
            own = tracked.tags("pretrain", RECIPES[name], name, recipe=RECIPES[name])
            run = tracker.run(name, tags=own, params={"pretrain.steps": 30})
            for step, loss in zip((10, 20, 30), losses, strict=True):
                speed = {"step_seconds": 0.5, "tokens_per_second": 100.0, "data_wait_share": 0.0}
                run.log({f"pretrain/{key}": value for key, value in {"loss": loss, **speed}.items()}, step)
            if name == "c":
                run.log({"pretrain/health/cosine_of_random_pairs": 0.99999}, 20)
            run.finish()
        tracker.find("none", step="none")  # waits until all is sent
    return uri, read_runs(uri)


def charts(app: AppTest) -> dict[str, list[dict[str, Any]]]:
    """Title -> the lines of each chart."""
    found = [json.loads(one.proto.spec) for one in app.get("plotly_chart")]
    return {one["layout"]["title"]["text"]: one["data"] for one in found}


def test_only_metrics_with_values_have_a_chart(store: tuple[str, list[TrackedRow]]) -> None:
    app = page("training", store[1], uri=store[0], phase="pretrain")
    assert set(charts(app)) == {"Loss", "Tokens a second"}
    said = captions(app)
    assert "c, step 20" in said and "collapse of the vectors" in said
    assert [(line["Tokens"], line["Last step"]) for line in table(app, "trainings")] == [("1.5 k", 30)] * 3


def test_runs_of_a_group_share_a_colour_and_have_a_mean(store: tuple[str, list[TrackedRow]]) -> None:
    app = page("training", store[1], uri=store[0], phase="pretrain", by="recipe", across="tokens")
    lines = {one["name"]: one for one in charts(app)["Loss"]}
    assert set(lines) == {"a", "b", "c", "mean of dupmae"}
    assert lines["a"]["line"]["color"] == lines["b"]["line"]["color"] == lines["mean of dupmae"]["line"]["color"]
    assert lines["c"]["line"]["color"] != lines["a"]["line"]["color"]
    mean = [(a + b) / 2 for a, b in zip(LOSSES["a"], LOSSES["b"], strict=True)]
    assert lines["mean of dupmae"]["y"] == mean and lines["c"]["x"] == [500.0, 1000.0, 1500.0]


def test_hours_and_smoothing_are_those_of_the_steps(store: tuple[str, list[TrackedRow]]) -> None:
    app = page("training", store[1], uri=store[0], phase="pretrain", across="hours", smoothing="5 points")
    (line,) = [one for one in charts(app)["Loss"] if one["name"] == "a"]
    assert line["x"] == pytest.approx([5 / 3600, 10 / 3600, 15 / 3600]) and line["y"] == [3.0, 3.0, 3.0]
