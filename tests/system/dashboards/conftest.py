"""One browser and one server of pages for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.support.dashboards.browser import chromium
from tests.support.dashboards.site import Site, everything_served


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="session")
def site(
    tmp_path_factory: pytest.TempPathFactory, browser: Chrome, worked_store: tuple[Path, dict[str, str]]
) -> Iterator[Site]:
    with everything_served(tmp_path_factory.mktemp("home"), worked_store[0]) as found:
        yield found
