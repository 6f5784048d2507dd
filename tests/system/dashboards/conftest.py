"""One browser and one server of pages for all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from midmask.tracking.runs import Tracker
from tests.support.choice.searched import write_verdict
from tests.support.dashboards import compared, swept, tracked
from tests.support.dashboards.browser import PAGE, chromium, served
from tests.support.dashboards.pages import Site


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="session")
def site(
    tmp_path_factory: pytest.TempPathFactory, browser: Chrome, worked_store: tuple[Path, dict[str, str]]
) -> Iterator[Site]:
    """Recipes with their artifacts, a benchmark, two sweeps, runs that go on or failed, and a verdict."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(worked_store[0] / "mlflow.db", home)
    uri = f"sqlite:///{home}/mlflow.db"
    tracked.everything(uri, home)
    with Tracker(uri, home, tracked.QUICK) as tracker:
        compared.benchmark(tracker)
        swept.track(tracker)
    verdict = write_verdict(home / "verdict", extra=30)
    flags = ["--tracking-uri", uri, "--verdict", str(verdict)]
    with served(PAGE, flags, home / "streamlit.log") as address:
        yield Site(address, uri, verdict)
