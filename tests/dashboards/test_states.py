"""Pages of stores that have nothing to show, or not yet, or cannot be read: each says what it waits for or what to
type.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from midmask.tracking import TrackedRow
from tests.support.dashboards import tracked
from tests.support.dashboards.browser import PAGE
from tests.support.dashboards.page import DASHBOARDS, LONGEST, page, words

NOTHING = {
    "board": "Nothing has been evaluated",
    "compare": "Nothing has been evaluated",
    "progress": "No job is running",
    "sweep": "No sweep has been tracked",
    "training": "No training has been tracked",
    "embeddings": "Nothing has been evaluated",
    "lineage": "Nothing has been evaluated",
    "search": "midmask ui --verdict FOLDER",
}
BEGUN = NOTHING | {"board": "Not finished", "progress": "ValueError: no", "training": "pretrain alive"}


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


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--tracking-uri", "sqlite:///{home}/none.db"], ["Nothing has been evaluated", "make demo"]),
        (["--tracking-uri", "http://me:secret@127.0.0.1:9"], ["***@127.0.0.1:9 does not answer", "start the server"]),
        (["--tracking-uri", "file:///tmp/mlruns"], ["is a folder", "sqlite:///mlflow.db"]),
        pytest.param(
            *(["--tracking-uri", "file:///nowhere", "--verdict", "{home}"], ["no longer supports", "verdict.json"]),
            marks=pytest.mark.system,  # torch comes with a verdict's page
        ),
    ],
)
def test_a_store_with_nothing_to_show_says_what_to_type(
    flags: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", [str(PAGE), *(flag.format(home=tmp_path) for flag in flags)])
    monkeypatch.syspath_prepend(DASHBOARDS)
    app = AppTest.from_file(PAGE, default_timeout=LONGEST).run()
    assert not app.exception, app.exception
    shown = words(app)
    assert all(one in shown for one in expected), shown
    assert "secret" not in shown + "".join(capfd.readouterr()) and not (tmp_path / "none.db").exists()
