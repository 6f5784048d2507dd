"""A browser for all tests of pages."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.support.dashboards.browser import chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running
