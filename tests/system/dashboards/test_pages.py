"""The pages in a real headless Chromium: what those beside the leaderboard show of runs with artifacts.

Every page of a store with all that it can hold, light and dark, as wide as a desk and as a phone: whole, accessible by
axe-core's rules, and without a request to another host.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from midmask.evaluation.statistics.pairing import pair_systems, widest
from midmask.leaderboard.artifacts import artifacts_behind
from midmask.leaderboard.rows import LeaderboardRow, per_query_files, rows
from midmask.store.place import Place
from midmask.tracking.names import ARTIFACT
from midmask.tracking.reading import TrackedRow, read_runs
from tests.support.dashboards import pages
from tests.support.dashboards.browser import appearance, hosts_asked


@dataclass(frozen=True)
class Worked:
    """The recipes whose artifacts are there: their runs and their rows on dev."""

    runs: dict[str, TrackedRow]
    rows: dict[str, LeaderboardRow]

    def place(self, recipe: str) -> Place:
        return Place(self.runs[recipe].tags[ARTIFACT])


@pytest.fixture(scope="module")
def worked(site: pages.Site) -> Worked:
    evaluated = {row.recipe: row for row in rows(read_runs(site.uri)) if row.place.corpus == "tiny"}
    return Worked({recipe: row.run for recipe, row in evaluated.items()}, evaluated)


def test_compare_counts_tests_and_shows_the_queries(browser, site, worked) -> None:
    own, base = (per_query_files(site.uri)(worked.rows[name]) for name in ("retromae", "bm25"))
    assert own is not None and base is not None
    pairing = pair_systems(own, base, "nDCG@10")
    browser.get(f"{site.address}/compare?place=tiny+dev&base=bm25&systems=retromae")
    (line,) = pages.wait_for_table(browser, "standings", 1)
    assert [int(count) for count in line[-3:]] == [pairing.wins, pairing.losses, pairing.ties]
    assert line[1] == f"{worked.rows['retromae'].measures['nDCG@10']:.4f}"
    pages.wait_until_equal(browser, cards, widest(pairing, 5))
    pages.wait_for_text(browser, "Found by retromae", "Judged relevant")
    pages.choose(browser, "side", "losses")
    pages.wait_for_query(browser, side="losses")
    copied = browser.current_url
    browser.get("about:blank")
    browser.get(copied)
    losses = widest(pairing, 5, "losses")
    pages.wait_until_equal(browser, cards, losses)
    browser.get(f"{copied}&query={losses[-1]}")
    pages.wait_until_equal(browser, cards, losses[-1:])


def cards(browser: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('.mm-query')].map(card => card.dataset.query)"
    return list(browser.execute_script(script))


def test_the_card_of_a_system_names_its_trainings_and_model(browser: Chrome, site: pages.Site, worked: Worked) -> None:
    behind = artifacts_behind(worked.place("retromae"))
    model = next(one for one in behind if one.record["step"] == "finetune").place / "model"
    browser.get(f"{site.address}/?corpus=tiny&split=dev")
    pages.choose(browser, "system", "retromae")
    pages.wait_for_text(browser, f"midmask search {model} --corpus", "pretrain · finetune")
    browser.execute_script("document.querySelector('.st-key-card_rerun input').click()")  # it is not seen: a switch is
    command = ["jobs/evaluate_retriever.py", "--recipe", "recipe.json", "--split dev"]
    shown = pages.wait_for_text(browser, *command, worked.runs["retromae"].tags["midmask.fingerprint"])
    assert "has no recipe.json" not in shown
    browser.get(f"{site.address}/?corpus=tiny&split=dev&find=bm25")
    pages.choose(browser, "system", "bm25")
    pages.wait_for_text(browser, "It has no model folder")


AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
RUN = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
GRAVE = ("serious", "critical")
WORDS = {
    "": "Bold: the best of its column",
    "compare": "Paired t-test over queries",
    "sweep": "Statistics",
    "search": "not relevant · kept in",
}
"""Page -> words that it shows."""

LOOKS = [((1280, "light"), (390, "dark")), ((390, "light"), (1280, "dark"))]
"""Widths and themes of a test; the second half of them is for `make test-all`."""

GROUND = "return getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor.match(/\\d+/g)"


@pytest.mark.parametrize("looks", [LOOKS[0], pytest.param(LOOKS[1], marks=pytest.mark.slow)], ids=["one", "other"])
@pytest.mark.parametrize("page", pages.PAGES)
def test_a_page_is_whole_and_accessible(browser, site, page, looks) -> None:
    hosts_asked(browser)
    browser.get(f"{site.address}/{page}")
    for width, theme in looks:
        with appearance(browser, theme, width):  # a page follows the browser without being loaded again
            pages.wait_for_text(browser, WORDS[page])
            is_dark = theme == "dark"
            pages.wait_for(browser, lambda page: (max(map(int, page.execute_script(GROUND)[:3])) < 128) == is_dark)  # noqa: B023
            pages.wait_until_drawn(browser)
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
