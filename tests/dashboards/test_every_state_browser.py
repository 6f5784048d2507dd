"""axe-core on every page, light and dark, wide and narrow: no serious violation of the accessibility rules."""

from importlib.resources import files
from typing import Any

import pytest
from selenium.webdriver import Chrome

from tests.support.dashboards.browser import appearance
from tests.support.dashboards.pages import PAGES, wait_until_drawn

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
RUN = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
GRAVE = ("serious", "critical")


@pytest.mark.parametrize("page", PAGES)
def test_no_serious_violation(browser: Chrome, address: str, page: str) -> None:
    for theme in ("light", "dark"):
        for width in (1280, 390):
            with appearance(browser, theme, width):
                browser.get(f"{address}/{page}")
                wait_until_drawn(browser)
                found = violations(browser)
                assert not found, f"{theme}, {width} px wide: {found}"


FAULTS = """
document.querySelector("[data-testid=stCaptionContainer] p").style.setProperty("color", "#aaa", "important");
document.querySelector("[data-testid=stMainBlockContainer]").insertAdjacentHTML("beforeend", "<button></button>");
"""


def test_axe_finds_what_is_wrong(browser: Chrome, address: str) -> None:
    """Light grey on white and a button without a name, in a page that passes."""
    browser.get(address)
    wait_until_drawn(browser)
    browser.execute_script(FAULTS)
    assert {name for name, _ in violations(browser)} == {"color-contrast", "button-name"}


def violations(browser: Chrome) -> list[tuple[str, list[Any]]]:
    """(rule, elements) of each grave violation."""
    browser.execute_script(AXE)
    found = browser.execute_async_script(RUN)["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found if one["impact"] in GRAVE]
