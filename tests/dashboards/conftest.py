"""A browser for all tests of pages, and the pages over a store of compared systems."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.support.dashboards import compared, tracked
from tests.support.dashboards.browser import ROOT, chromium, served


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the pages over a store of evaluated, running and failed runs are served."""
    home = tmp_path_factory.mktemp("home")
    uri = f"sqlite:///{home}/mlflow.db"
    tracked.everything(uri, home)
    compared.store(uri, home)
    flags = ["--tracking-uri", uri, "--mlflow-ui", "http://127.0.0.1:5999"]
    with served(ROOT / "dashboards" / "leaderboard.py", flags, home / "streamlit.log") as found:
        yield found
