"""Five thousand runs: the first start tells how far it is, a page shows a hundred systems, a snapshot is kept."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from midmask.tracking.store import alone_with
from tests.support.dashboards import many
from tests.support.dashboards.browser import ROOT, served
from tests.support.dashboards.pages import wait_for_lines, wait_for_text
from tests.support.dashboards.states import RUNS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    many.fill(f"sqlite:///{home}/mlflow.db", home, RUNS)
    return home / "mlflow.db"


@pytest.mark.slow
def test_five_thousand_runs(browser: Chrome, store: Path, tmp_path: Path) -> None:
    page, uri = ROOT / "dashboards" / "leaderboard.py", f"sqlite:///{store}"
    with served(page, ["--tracking-uri", uri], tmp_path / "streamlit.log") as address:
        browser.get(address)
        wait_for_text(browser, "Reading the runs for the first time")
        wait_for_text(browser, "Systems 1 to 100 of 1,000")
        wait_for_text(browser, f"{RUNS:,} runs")
        wait_for_text(browser, "Filter these 1000 systems down to 30")
        best = RUNS // len(many.SEEDS) - 1
        lines = wait_for_lines(browser, "systems", 100)
        assert lines[0][1].splitlines()[0] == f"{many.measure(best, 2):.4f}"
        browser.get(f"{address}/?page=2&reverse=true&protocol=protocol+1")
        wait_for_text(browser, "Systems 101 to 200 of 200")
    assert store.with_name("mlflow.db.runs.parquet").exists()
    store.write_bytes(b"no database" * 1000)  # from here on, what is shown comes from the snapshot
    with served(page, ["--tracking-uri", uri], tmp_path / "streamlit.log") as address:
        with alone_with(uri):  # the page's look waits for this
            browser.get(address)
            wait_for_text(browser, "Systems 1 to 100 of 1,000")
            wait_for_text(browser, "reading what has changed since")
        wait_for_text(browser, "Below is what was known before")
        assert browser.find_elements(By.CSS_SELECTOR, "[data-testid=stAlert]")
