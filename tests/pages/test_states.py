"""Pages of stores that have nothing to show, or not yet, or cannot be read, and of jobs that run or have ended."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from midmask.pages import serving_command
from midmask.tracking.reading import TrackedRow
from tests.support.dashboards import tracked
from tests.support.dashboards.page import LONGEST, page, words

PAGE = serving_command(8501)[4]
NOTHING = {
    "board": "Nothing has been evaluated", "compare": "Nothing has been evaluated",
    "sweep": "No sweep has been tracked", "search": "midmask leaderboard --verdict FOLDER",
}  # fmt: skip
BEGUN = NOTHING | {"board": "ValueError: no"}


def begun() -> list[TrackedRow]:
    """A training that runs and a job that failed; nothing was evaluated yet."""
    now = datetime.now(UTC)
    tags = tracked.tags("pretrain", "retromae", "live")
    reason = {"midmask.reason": "ValueError: no"}
    return [
        TrackedRow("1", "1", "pretrain alive", None, "running", now, None, tags, {}, {"pretrain/loss": 3.0}),
        TrackedRow("2", "1", "lost", None, "failed", now, now, reason, {}, {}),
    ]


@pytest.mark.parametrize("view", NOTHING)
def test_a_page_without_results_says_so(view: str) -> None:
    assert NOTHING[view] in words(page(view, []))
    assert BEGUN[view] in words(page(view, begun()))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Starts the dashboard with these flags, with nothing kept from before; what its first page says."""

    def run(*flags: str) -> str:
        monkeypatch.setattr(sys, "argv", [PAGE, *(flag.format(home=tmp_path) for flag in flags)])
        st.cache_resource.clear()
        app = AppTest.from_file(PAGE, default_timeout=LONGEST).run()
        assert not app.exception, app.exception
        return words(app)

    return run


@pytest.mark.parametrize(
    ("uri", "expected"),
    [("sqlite:///{home}/none.db", ["Nothing has been evaluated", "make demo"]),
     ("http://me:secret@127.0.0.1:9", ["***@127.0.0.1:9 does not answer", "start the server"]),
     ("file:///tmp/mlruns", ["no longer supports folders", "sqlite:///mlflow.db"])],
)  # fmt: skip
def test_a_store_with_nothing_to_show_says_what_to_type(uri, expected, start, tmp_path, capfd) -> None:
    shown = start("--tracking-uri", uri)
    assert all(one in shown for one in expected), shown
    assert "secret" not in shown + "".join(capfd.readouterr()) and not (tmp_path / "none.db").exists()


@pytest.mark.system  # torch comes with a verdict's page
def test_a_verdict_is_asked_without_runs(start: Callable[..., str]) -> None:
    shown = start("--tracking-uri", "file:///nowhere", "--verdict", "{home}")
    assert "no longer supports" in shown and "there is no verdict.json" in shown
