"""The Sweep page shows every trial with its state, and a verdict for each split beside the numbers of that split."""

import json
import shutil
from itertools import accumulate
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from midmask.tracking import TrackedRow, Tracker, read_runs
from tests.support.dashboards import swept, tracked
from tests.support.dashboards.page import captions, page, table, words


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


def texts(lines: list[list[str]], at: int) -> list[str]:
    return [line[at].rsplit("|", 1)[0] for line in lines]


def named(store: tuple[str, list[TrackedRow]], *, plain: bool) -> AppTest:
    """The page of the sweep without a file (`plain`) or of the other."""
    uri, runs = store
    left_out = "topn" if plain else "sweep_mask_ratio"
    return page("sweep", [run for run in runs if left_out not in run.name], uri=uri)


def test_pruned_failed_and_running_trials_are_listed_with_their_state(store: tuple[str, list[TrackedRow]]) -> None:
    app = named(store, plain=False)
    heads, lines = table(app, "points")
    assert texts([heads], 1) == ["State"]
    states = dict(zip(texts(lines, 0), texts(lines, 1), strict=True))
    assert len(states) == len(swept.POINTS) + 3
    ended = {"pruned": "pruned", "trial t-failed": "failed", "trial t-running": "running"}
    assert {name: state for name, state in states.items() if state != "complete"} == ended
    values = dict(zip(texts(lines, 0), texts(lines, 2), strict=True))
    assert values["pruned"] == "0.1000 at a rung" and values["trial t-failed"] == "—"
    best_first = [float(value) for value in texts(lines, 2)[: len(swept.POINTS)]]
    assert best_first == sorted(best_first, reverse=True)
    assert "16 trials: 13 complete, 1 pruned, 1 running, 1 failed." in captions(app)


def test_a_sweep_without_a_file_lists_them_too_and_has_a_surface(store: tuple[str, list[TrackedRow]]) -> None:
    app = named(store, plain=True)
    _, lines = table(app, "trials")
    assert sorted(texts(lines, 1)) == ["complete"] * 8 + ["failed", "pruned", "running"]
    assert texts(lines, 2)[:8] == [f"{value:.4f}" for value in sorted(tracked.DEV.values())[:0:-1]]
    assert set(texts(lines, 2)[8:]) == {"—"}
    assert "Best nDCG@10 0.5800 at encoder 0.5, decoder 0.9" in words(app)


def test_both_splits_have_their_own_verdict(store: tuple[str, list[TrackedRow]]) -> None:
    """Within the noise on dev, and clearly worse on test: neither stands for the other."""
    app = named(store, plain=False)
    heads, lines = table(app, "comparison")
    best, floor = ([cell.rsplit("|", 1) for cell in line] for line in lines)
    at = {head.rsplit("|", 1)[0]: number for number, head in enumerate(heads)}
    assert best[at["Verdict on dev"]] == ["≈ not significant", "quiet"]
    assert best[at["Verdict on test"]] == ["▼ worse", "loss"]
    dev, test = (head for head in at if "nDCG@10" in head)
    assert [best[at[head]][0] for head in (dev, test)] == ["0.5250", "0.4350"]
    assert best[at[test] + 1] == ["-0.0885-0.1185 … -0.0585, p 1.3e-05", "num loss"]
    assert floor[0][0] == "none" and floor[at["Verdict on test"]][0] == "—"
    assert "61 dev queries" in captions(app) and "on 93 queries" in captions(app)


def test_the_answer_comes_first_and_then_its_charts(store: tuple[str, list[TrackedRow]]) -> None:
    app = named(store, plain=False)
    assert "is \\*not\\* distinguishable" in app.main[0].value, "the sentence stands above all charts, as text"
    figures = [json.loads(one.proto.spec) for one in app.get("plotly_chart")]
    lines = [{line.get("name"): line for line in one["data"]} for one in figures]
    (history,) = [one for one in lines if "best so far" in one]
    complete = [swept.value(*point) for point in swept.POINTS]
    assert history["best so far"]["y"][: len(complete)] == list(accumulate(complete, max))
    titles = [one["layout"]["xaxis"].get("title", {}).get("text") for one in figures]
    assert {"CLS width", "N", "words from", "bytes per passage"} <= set(titles)
