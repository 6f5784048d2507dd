"""Every page of a store with all that it can hold, light and dark, as wide as a desk and as a phone: whole, accessible
by axe-core's rules, and without a request to another host.
"""

from importlib.resources import files
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.support.dashboards.browser import appearance, hosts_asked
from tests.support.dashboards.pages import PAGES, wait_for, wait_for_text, wait_until_drawn

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
RUN = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
GRAVE = ("serious", "critical")

WORDS = {
    "": "letters: the systems it is significantly better than",
    "compare": "Paired t-test over queries",
    "sweep": "Statistics",
    "training": "pretrain-retromae",
    "search": "not relevant · kept in",
}
"""Page -> words that it shows."""

LOOKS = [((1280, "light"), (390, "dark")), ((390, "light"), (1280, "dark"))]
"""Widths and themes of a test; the second half of them is for `make test-all`."""

GROUND = "return getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor.match(/\\d+/g)"


@pytest.mark.parametrize("looks", [LOOKS[0], pytest.param(LOOKS[1], marks=pytest.mark.slow)], ids=["one", "other"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_and_accessible(browser, site, page, looks) -> None:
    hosts_asked(browser)
    browser.get(f"{site.address}/{page}")
    for width, theme in looks:
        with appearance(browser, theme, width):  # a page follows the browser without being loaded again
            wait_for_text(browser, WORDS[page])
            is_dark = theme == "dark"
            wait_for(browser, lambda page: (max(map(int, page.execute_script(GROUND)[:3])) < 128) == is_dark)  # noqa: B023
            wait_until_drawn(browser)
            shown = f"{theme}, {width} px wide"
            assert not browser.find_elements(By.CSS_SELECTOR, "[data-testid=stException]"), shown
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, shown
            assert not (found := violations(browser)), f"{shown}: {found}"
    assert hosts_asked(browser) == {"127.0.0.1"}


def violations(browser: Chrome) -> list[tuple[str, list[Any]]]:
    """(rule, elements) of each grave violation."""
    browser.execute_script(AXE)
    found = browser.execute_async_script(RUN)["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found if one["impact"] in GRAVE]
