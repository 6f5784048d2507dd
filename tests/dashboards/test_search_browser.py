"""The page Search in a real headless Chromium: what two systems find, judging it, and texts that would run."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from midmask.choice.interleaving import team_draft
from midmask.choice.judgements import JudgementJournal, JudgementStore, query_id
from midmask.choice.side_by_side import SideBySide, rank_changes
from tests.support.choice.searched import HOSTILE, write_verdict
from tests.support.dashboards.browser import ROOT, hosts_asked, served
from tests.support.dashboards.pages import DRAWN, PATIENCE, choose, query, text, wait_for_table, wait_for_text

PAGE = ROOT / "dashboards" / "leaderboard.py"
LEFT, RIGHT = "retromae · dense", "bm25"


@dataclass(frozen=True)
class Searched:
    """The page's address, the folder of its verdict, and the verdict's systems as this process opens them."""

    address: str
    folder: Path
    systems: SideBySide

    def journal(self) -> JudgementJournal:
        return JudgementStore(self.folder, self.systems.collection).read()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_verdict(tmp_path_factory.mktemp("made"), extra=30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, made: Path, empty_store: Path) -> Iterator[Searched]:
    """One server for all tests of a verdict; each test begins without judgements."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home)
    arguments = ["--tracking-uri", f"sqlite:///{home}/mlflow.db", "--verdict", str(made)]
    with served(PAGE, arguments, home / "streamlit.log") as address:
        yield Searched(address, made, SideBySide(made))


@pytest.fixture(autouse=True)
def without_judgements(made: Path) -> None:
    shutil.rmtree(made / "judgements", ignore_errors=True)


def found(browser: Chrome, side: str) -> list[str]:
    """Documents of a list as they stand on the page."""
    script = """return [...document.querySelectorAll(`[class*="st-key-hit-${arguments[0]}-"] .mm-hit`)]
        .map(one => one.dataset.doc)"""
    return list(browser.execute_script(script, side))


def wait_for_list(browser: Chrome, side: str, expected: list[str]) -> None:
    def is_there(page: Chrome) -> bool:
        return found(page, side) == expected and bool(page.find_elements(By.CSS_SELECTOR, DRAWN))

    WebDriverWait(browser, PATIENCE).until(is_there, f"not {expected}")


def type_query(browser: Chrome, words: str) -> None:
    where = (By.CSS_SELECTOR, ".st-key-q input")
    box = WebDriverWait(browser, PATIENCE).until(expected_conditions.element_to_be_clickable(where))
    box.send_keys(words, Keys.ENTER)


def buttons(browser: Chrome, side: str, rank: int) -> list[WebElement]:
    """The thumbs up and down of a result."""
    return list(browser.find_elements(By.CSS_SELECTOR, f".st-key-hit-{side}-{rank} [role=radio]"))


def press_thumb(browser: Chrome, side: str, rank: int, which: int) -> None:
    """Presses up (0) or down (1) once it is drawn: a thumb's own script comes after the passages."""

    def press(page: Chrome) -> bool:
        thumbs = buttons(page, side, rank)
        if len(thumbs) == 2:
            thumbs[which].click()
        return len(thumbs) == 2

    WebDriverWait(browser, PATIENCE, ignored_exceptions=[StaleElementReferenceException]).until(press)


def wait_for_thumbs(browser: Chrome, side: str, rank: int, *given: bool) -> None:
    """Waits until these of the thumbs up and down are given."""
    wanted = [str(one).lower() for one in given]
    WebDriverWait(browser, PATIENCE, ignored_exceptions=[StaleElementReferenceException]).until(
        lambda page: [one.get_attribute("aria-checked") for one in buttons(page, side, rank)] == wanted
    )


def ranks(site: Searched, label: str, query: str) -> list[str]:
    return list(site.systems.rank(label, query).doc_ids[:10])


def test_two_lists_appear_and_a_thumb_stays(browser: Chrome, site: Searched) -> None:
    asked = "change the port of the server"
    browser.get(f"{site.address}/search")
    wait_for_text(browser, "try one that was made of the documents")
    type_query(browser, asked)
    left, right = ranks(site, LEFT, asked), ranks(site, RIGHT, asked)
    wait_for_list(browser, "left", left)
    wait_for_list(browser, "right", right)
    assert query(browser)["q"] == [asked]
    shown = browser.find_elements(By.CSS_SELECTOR, "[class*=st-key-hit-right-] .change")
    expected = [
        "new" if up is None or rank + up > 10 else "=" if not up else f"{'↑' if up > 0 else '↓'}{abs(up)}"
        for rank, up in enumerate(rank_changes(right, site.systems.rank(LEFT, asked).doc_ids), start=1)
    ]
    assert [one.text for one in shown] == expected and "new" in expected
    marked = {one.text.lower() for one in browser.find_elements(By.CSS_SELECTOR, ".mm-hit mark")}
    assert {"port", "server"} <= marked <= {"port", "server", "change"}
    assert "faq.md · characters 81 to 200" in text(browser)
    assert [one.text[-3:] for one in browser.find_elements(By.CSS_SELECTOR, ".mm-side .time")] == [" ms", " ms"]
    press_thumb(browser, "right", 1, 0)
    wait_for_text(browser, "1 judged query · 1 relevant")
    press_thumb(browser, "left", 3, 1)
    wait_for_text(browser, "1 relevant · 1 not relevant")
    qrels = (site.folder / "judgements" / "qrels" / "test.tsv").read_text().splitlines()
    assert qrels[1:] == [f"{query_id(asked)}\t{right[0]}\t1", f"{query_id(asked)}\t{left[2]}\t0"]
    browser.refresh()
    wait_for_thumbs(browser, "right", 1, True, False)
    wait_for_thumbs(browser, "left", 3, False, True)
    press_thumb(browser, "left", 3, 1)
    wait_for_text(browser, "1 relevant · 0 not relevant")
    (line,) = wait_for_table(browser, "judged systems", lambda lines: len(lines) >= 2)[:1]
    assert line[0] == RIGHT and line[1] == "1.000"
    assert "too few to compare with the verdict" in text(browser)


def test_hostile_text_is_inert(browser: Chrome, site: Searched) -> None:
    """In a passage, in its title and in a query."""
    browser.get(f"{site.address}/search?q=hostile+text+**bold**+:smile:+%3Cimg%20src=x%20onerror=window.hacked=1%3E")
    WebDriverWait(browser, PATIENCE).until(lambda page: "notes/hostile.md#0-90" in found(page, "right"))
    where = "[data-doc='notes/hostile.md#0-90']"
    cards = browser.find_elements(By.CSS_SELECTOR, where)
    assert HOSTILE in cards[0].text.replace("\n", " ") and "<b>Bold</b> title" in cards[0].text
    assert not browser.find_elements(By.CSS_SELECTOR, ".mm-hit img, .mm-hit script, .mm-hit b, .mm-hit strong")
    rank = found(browser, "right").index("notes/hostile.md#0-90") + 1
    press_thumb(browser, "right", rank, 0)
    wait_for_text(browser, "1 judged query · 1 relevant")
    browser.get(f"{site.address}/search?how=Judge+next")
    wait_for_text(browser, "Does this passage answer the query?")
    script = "return [...document.querySelectorAll('.mm-asked')].map(one => one.innerText)"
    asked = WebDriverWait(browser, PATIENCE).until(lambda page: page.execute_script(script))
    assert asked == ["hostile text **bold** :smile: <img src=x onerror=window.hacked=1>"]
    assert browser.execute_script("return window.hacked") is None


def test_a_blind_list_hides_and_credits_the_teams(browser: Chrome, site: Searched) -> None:
    asked = "restore the backup of the server"
    browser.get(f"{site.address}/search?q={asked.replace(' ', '+')}&how=Blind")
    picks = team_draft({label: site.systems.rank(label, asked).doc_ids for label in (LEFT, RIGHT)}, asked, 10)
    wait_for_list(browser, "blind", [pick.doc_id for pick in picks])
    assert not browser.find_elements(By.CSS_SELECTOR, ".mm-side, .change")
    rank, (doc_id, team) = next((at, pick) for at, pick in enumerate(picks, start=1) if pick.team == RIGHT)
    press_thumb(browser, "blind", rank, 0)
    wait_for_text(browser, f"Blind, {LEFT} won 0, {RIGHT} won 1, and 0 were ties: too close to call")
    (row,) = site.journal().rows
    assert (row.doc_id, row.team, row.mode, row.grade) == (doc_id, team, "blind", 1)
    choose(browser, "left", RIGHT)
    wait_for_text(browser, "Choose two different systems to compare.")


def test_the_pool_is_judged_one_by_one_and_a_skipped_passage_goes(browser: Chrome, site: Searched) -> None:
    browser.get(f"{site.address}/search?how=Judge+next")
    wait_for_text(browser, "Does this passage answer the query?")
    seen: list[str] = []
    for name in ("Relevant", "Not", "Skip", None):
        WebDriverWait(browser, PATIENCE).until(lambda page: found(page, "next") not in ([], seen[-1:]))  # noqa: B023
        if name:
            seen += found(browser, "next")
            where = (By.CSS_SELECTOR, f"[class*='st-key-next'][class*='{name}'] button")
            WebDriverWait(browser, PATIENCE).until(expected_conditions.element_to_be_clickable(where)).click()
    assert len(set(seen)) == 3
    rows = site.journal().rows
    assert [(row.doc_id, row.grade, row.mode) for row in rows] == [(seen[0], 1, "next"), (seen[1], 0, "next")]
    assert {row.query for row in rows} == {next(iter(site.systems.made_queries.values()))}


def test_on_a_phone_nothing_scrolls_sideways_and_no_other_host_is_asked(browser: Chrome, site: Searched) -> None:
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    hosts_asked(browser)
    try:
        for how in ("Side+by+side", "Blind", "Judge+next"):
            browser.get(f"{site.address}/search?q=hostile+server&how={how}")
            WebDriverWait(browser, PATIENCE).until(lambda page: page.find_elements(By.CSS_SELECTOR, ".mm-hit"))
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, how
            assert not browser.find_elements(By.CSS_SELECTOR, "[data-testid=stException]"), how
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert hosts_asked(browser) == {"127.0.0.1"}


def test_what_is_missing_is_said(browser: Chrome, tmp_path: Path, empty_store: Path) -> None:
    """No verdict; a folder that is none, beside runs that cannot be read."""
    shutil.copy(empty_store, tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with served(PAGE, ["--tracking-uri", uri], tmp_path / "streamlit.log") as address:
        browser.get(f"{address}/search")
        assert "No verdict was named" in wait_for_text(browser, "midmask ui --verdict FOLDER")
    arguments = ["--tracking-uri", "file:///nowhere", "--verdict", str(tmp_path)]
    with served(PAGE, arguments, tmp_path / "streamlit.log") as address:
        browser.get(address)
        shown = wait_for_text(browser, "a kind of store that MLflow no longer supports")
        assert "there is no verdict.json" in shown
