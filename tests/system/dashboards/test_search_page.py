"""The page Search in a real headless Chromium: what two systems find, judging it, and texts that would run."""

import shutil

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from midmask.choice.judgements import query_id
from midmask.choice.side_by_side import SideBySide
from tests.support.choice.searched import HOSTILE
from tests.support.dashboards import pages

LEFT, RIGHT = "retromae · dense", "bm25"
HOSTILE_DOC = "notes/hostile.md#0-90"


@pytest.fixture(scope="module")
def systems(site: pages.Site) -> SideBySide:
    """The verdict's systems as this process opens them."""
    return SideBySide(site.verdict)


@pytest.fixture(autouse=True)
def no_judgements(site: pages.Site) -> None:
    shutil.rmtree(site.verdict / "judgements", ignore_errors=True)


def found(browser: Chrome, side: str) -> list[str]:
    """Documents of a list as they stand on the page."""
    script = """return [...document.querySelectorAll(`[class*="st-key-hit-${arguments[0]}-"] .mm-hit`)]
        .map(one => one.dataset.doc)"""
    return list(browser.execute_script(script, side))


def wait_for_list(browser: Chrome, side: str, expected: list[str]) -> None:
    pages.wait_until_equal(browser, lambda page: found(page, side), expected)


def press_thumb(browser: Chrome, side: str, rank: int, which: int) -> None:
    """Presses up (0) or down (1) once both are drawn: a thumb's own script comes after the passages."""

    def press(page: Chrome) -> bool:
        thumbs = page.find_elements(By.CSS_SELECTOR, f".st-key-hit-{side}-{rank} [role=radio]")
        if len(thumbs) == 2:
            thumbs[which].click()
        return len(thumbs) == 2

    pages.wait_for(browser, press)


def wait_for_thumbs(browser: Chrome, side: str, rank: int, expected: list[str]) -> None:
    script = """return [...document.querySelectorAll(`.st-key-hit-${arguments[0]}-${arguments[1]} [role=radio]`)]
        .map(one => one.getAttribute("aria-checked"))"""
    pages.wait_until_equal(browser, lambda page: page.execute_script(script, side, rank), expected)


def test_two_systems_side_by_side_and_judging_them(browser: Chrome, site: pages.Site, systems: SideBySide) -> None:
    browser.get(f"{site.address}/search")
    asked = "change the port of the server"
    pages.type_into(browser, ".st-key-q input", asked)
    left, right = ([hit.doc_id for hit in systems.search(label, asked, 10)] for label in (LEFT, RIGHT))
    wait_for_list(browser, "left", left)
    wait_for_list(browser, "right", right)
    pages.wait_for_query(browser, q=asked)
    marked = {one.lower() for one in pages.texts(browser, ".mm-hit mark")}
    assert {"port", "server"} <= marked <= {"port", "server", "change"}
    pages.wait_for_text(browser, "faq.md#81-200")
    press_thumb(browser, "right", 1, 0)
    pages.wait_for_text(browser, "1 judged query · 1 relevant")
    press_thumb(browser, "left", 3, 1)
    pages.wait_for_text(browser, "1 relevant · 1 not relevant")
    qrels = (site.verdict / "judgements" / "qrels" / "test.tsv").read_text().splitlines()
    assert qrels[1:] == [f"{query_id(asked)}\t{right[0]}\t1", f"{query_id(asked)}\t{left[2]}\t0"]
    browser.refresh()
    wait_for_thumbs(browser, "right", 1, ["true", "false"])
    wait_for_thumbs(browser, "left", 3, ["false", "true"])
    press_thumb(browser, "left", 3, 1)
    pages.wait_for_text(browser, "1 relevant · 0 not relevant")
    pages.click(browser, "[data-testid=stExpander] summary")
    pages.wait_for_text(browser, f"--corpus beir:{site.verdict / 'judgements'} --split test")


def test_hostile_text_is_inert(browser: Chrome, site: pages.Site) -> None:
    """In a passage, in its title and in a query."""
    browser.get(f"{site.address}/search?q=hostile+text+**bold**+:smile:+%3Cimg%20src=x%20onerror=window.hacked=1%3E")
    pages.wait_for(browser, lambda page: HOSTILE_DOC in found(page, "right"))
    card = pages.texts(browser, f"[data-doc='{HOSTILE_DOC}']")[0].replace("\n", " ")
    assert HOSTILE in card and "<b>Bold</b> title" in card
    assert pages.texts(browser, ".mm-hit img, .mm-hit script, .mm-hit b, .mm-hit strong") == []
    press_thumb(browser, "right", found(browser, "right").index(HOSTILE_DOC) + 1, 0)
    pages.wait_for_text(browser, "1 judged query · 1 relevant")
    assert browser.execute_script("return window.hacked") is None
