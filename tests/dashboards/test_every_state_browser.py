"""Every page in every state of a store, light and dark, as wide as a desk and as a phone: whole, accessible by
axe-core's rules, and without a request to another host.
"""

import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.dashboards.browser import ROOT, appearance, hosts_asked, served
from tests.support.dashboards.pages import PAGES, wait_for_text, wait_until_drawn
from tests.support.dashboards.states import STATES

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
RUN = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
GRAVE = ("serious", "critical")

WORDS = {
    "empty": {
        "": "Nothing has been evaluated",
        "compare": "Nothing has been evaluated",
        "progress": "No job is running",
        "sweep": "No sweep has been tracked",
        "training": "No training has been tracked",
        "embeddings": "Nothing has been evaluated",
        "lineage": "Nothing has been evaluated",
        "search": "midmask ui --verdict FOLDER",
    },
    "one job": {
        "": "Systems 1 to 1 of 1",
        "compare": "It takes two systems",
        "progress": "No job is running",
        "sweep": "No sweep has been tracked",
        "training": "pretrain-retromae",
        "embeddings": "Cosine of pairs",
        "lineage": "steps, which took",
        "search": "midmask ui --verdict FOLDER",
    },
    "unfinished": {
        "": "Not finished",
        "compare": "Nothing has been evaluated",
        "progress": "Its process has ended.",
        "sweep": "No sweep has been tracked",
        "training": "pretrain-alive",
        "embeddings": "Nothing has been evaluated",
        "lineage": "Nothing has been evaluated",
        "search": "midmask ui --verdict FOLDER",
    },
    "several": {
        "": "letters: the systems it is significantly better than",
        "compare": "Paired t-test over the queries",
        "progress": "Killed or failed within a day",
        "sweep": "What to try next",
        "training": "pretrain-retromae",
        "embeddings": "does not tell where its artifact lies",
        "lineage": "does not tell where its artifact lies",
        "search": "0 judged queries",
    },
    "thousands": {
        "": "Systems 1 to 100 of 1,000",
        "compare": "keep no values per query",
        "progress": "No job is running",
        "sweep": "No sweep has been tracked",
        "training": "No training has been tracked",
        "embeddings": "does not tell where its artifact lies",
        "lineage": "does not tell where its artifact lies",
        "search": "midmask ui --verdict FOLDER",
    },
}
"""State of the store -> page -> words that it shows."""

PATIENCE = 900
"""Seconds for all pages of a state; the first look at thousands of runs is one of them."""


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=[pytest.mark.slow] if one == "thousands" else []) for one in STATES]
)
def state(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    empty_store: Path,
    worked_store: tuple[Path, dict[str, str]],
) -> Iterator[tuple[str, str]]:
    """The state's name and the address of the pages over a store in it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home / "mlflow.db")
    with STATES[request.param](home, worked_store[0]) as flags:
        with served(ROOT / "dashboards" / "leaderboard.py", flags, home / "streamlit.log") as address:
            yield request.param, address


LOOKS = [((1280, "light"), (390, "dark")), ((390, "light"), (1280, "dark"))]
"""Widths and themes of a test; the second half of them is for `make test-all`."""


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("looks", [LOOKS[0], pytest.param(LOOKS[1], marks=pytest.mark.slow)], ids=["one", "other"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_and_accessible(
    browser: Chrome, state: tuple[str, str], page: str, looks: tuple[tuple[int, str], ...]
) -> None:
    name, address = state
    hosts_asked(browser)
    browser.get(f"{address}/{page}")
    for width, theme in looks:
        with appearance(browser, theme, width):  # a page follows the browser without being loaded again
            wait_for_text(browser, WORDS[name][page])
            wait_for_ground(browser, dark=theme == "dark")
            shown = f"{theme}, {width} px wide"
            assert not browser.find_elements(By.CSS_SELECTOR, "[data-testid=stException]"), shown
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, shown
            assert not (found := violations(browser)), f"{shown}: {found}"
    assert hosts_asked(browser) == {"127.0.0.1"}


GROUND = "return getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor.match(/\\d+/g)"


def wait_for_ground(browser: Chrome, *, dark: bool) -> None:
    """Until the page is drawn, on a ground as the browser wants it."""

    def look(page: Chrome) -> bool:
        return (max(map(int, page.execute_script(GROUND)[:3])) < 128) == dark

    WebDriverWait(browser, 90).until(look)
    wait_until_drawn(browser)


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
