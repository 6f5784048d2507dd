"""The Progress page: what a job does, the end of its log, and a kill that is seen without a reload."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from midmask.tracking import LOG, TrackedRow
from midmask.tracking.lease import OWNER, lease_tags
from tests.support.dashboards.browser import ROOT, served
from tests.support.dashboards.page import html, page, table
from tests.support.dashboards.pages import wait_for_text

WITHIN = 60
"""Seconds in which a kill must be seen."""

JOB = """
import sys, time
from pathlib import Path
from midmask.tracking import LOG, PROGRESS, Patience, Tracker
uri, home = sys.argv[1], Path(sys.argv[2])
(home / "job.log").write_text("".join(f"line {number} of the log\\n" for number in range(100)))
tracker = Tracker(uri, home, Patience(flush=0.02))
job = tracker.run("run_recipe-a", tags={"midmask.step": "job", LOG: str(home / "job.log")}, params={})
job.tag({PROGRESS: "phase 2 of 3: trainings"})
own = {"midmask.step": "pretrain", "midmask.fingerprint": "f00d"}
run = tracker.run("pretrain-a", tags=own, params={"pretrain.steps": 1000}, parent=job.id)
run.log({"pretrain/loss": 3.25, "pretrain/step_seconds": 60.0}, 250)
tracker.find("none", step="none")
print("told", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", JOB, f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


@pytest.mark.slow
def test_a_running_job_and_its_kill(browser: Chrome, job: subprocess.Popen[str], tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with served(ROOT / "dashboards" / "leaderboard.py", ["--tracking-uri", uri], tmp_path / "streamlit.log") as address:
        assert job.stdout is not None and job.stdout.readline() == "told\n"
        browser.get(f"{address}/progress")
        told = wait_for_text(browser, "step 250 of 1,000")
        assert "loss 3.2500" in told and "about 12h" in told and "phase 2 of 3" in told and "killed" not in told
        browser.find_element("css selector", "[data-testid=stExpander] summary").click()
        wait_for_text(browser, "line 99 of the log")
        job.kill()
        job.wait()
        wait_for_text(browser, "Its process has ended", WITHIN)
        assert "left" not in html_of(browser), "no time is left for a job that has ended"


def html_of(browser: Chrome) -> str:
    return browser.find_element("css selector", ".mm-job").text


def test_nothing_runs_and_that_is_said() -> None:
    app = page("progress", [])
    assert "No job is running" in app.info[0].value and "mm-job" not in html(app)


@pytest.mark.parametrize("killed", [False, True])
def test_a_job_is_shown_with_its_life_and_the_end_of_its_log(tmp_path: Path, killed: bool) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {number} of the log\n" for number in range(2000)))
    tags = {**lease_tags(), LOG: str(log)}
    if killed:
        tags[OWNER] = tags[OWNER].rpartition(":")[0] + ":1"
    now = datetime.now(UTC)
    job = TrackedRow("1", "1", "run_recipe <a>", None, "running", now, None, tags, {}, {})
    early = TrackedRow("2", "1", "lost", None, "failed", now, now, {"midmask.reason": "ValueError: no"}, {}, {})
    app = page("progress", [job, early])
    assert ("Its process has ended" in html(app)) == killed and "run_recipe &lt;a&gt;" in html(app)
    lines = app.code[0].value.splitlines()
    assert lines == [f"line {number} of the log" for number in range(2000 - len(lines), 2000)] and len(lines) > 5
    assert table(app, "ended early")[1][0][4].startswith("ValueError: no")
