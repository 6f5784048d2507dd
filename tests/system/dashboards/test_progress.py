"""The Progress page of a job that runs, and is killed while it is shown."""

import subprocess
import sys
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.support.dashboards.browser import PAGE, served
from tests.support.dashboards.pages import click, texts, wait_for_text, wait_for_texts

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


@pytest.mark.slow
def test_a_running_job_and_its_kill(browser: Chrome, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with (
        subprocess.Popen([sys.executable, "-c", JOB, uri, tmp_path], stdout=subprocess.PIPE, text=True) as job,
        served(PAGE, ["--tracking-uri", uri], tmp_path / "streamlit.log") as address,
    ):
        try:
            assert job.stdout is not None and job.stdout.readline() == "told\n"
            browser.get(f"{address}/progress")
            told = wait_for_texts(browser, "step 250 of 1,000", "loss 3.2500", "about 12h", "phase 2 of 3")
            assert "killed" not in told
            click(browser, "[data-testid=stExpander] summary")
            wait_for_text(browser, "line 99 of the log")
        finally:
            job.kill()
        wait_for_text(browser, "Its process has ended", patience=WITHIN)
        assert "left" not in texts(browser, ".mm-job")[0], "no time is left for a job that has ended"
