"""The page of a verdict in a real headless Chromium, from disk: no request, no overflow, labels apart."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from midmask.choice.report_html import verdict_html
from midmask.choice.wording import headline
from tests.support.dashboards.browser import chromium
from tests.support.verdicts import undecided, verdict

LABELS = """
return [...document.querySelectorAll("svg.picture")].filter(svg => svg.getClientRects().length).map(svg =>
  [...svg.querySelectorAll("text.label, text.tick, text.axis")].map(text => {
    const box = text.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom, text.textContent]; }));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("verdict") / "verdict.html"
    path.write_text(verdict_html(verdict()), "utf-8")
    return path.as_uri()


def requests(browser: Chrome) -> list[str]:
    """Addresses of all requests, whatever their scheme, since this was last asked."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return [each["request"]["url"] for each in sent]


def show(browser: Chrome, address: str, *, width: int = 1280) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(address)
    browser.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")


def test_it_opens_from_disk_without_any_other_request_and_without_complaints(browser: Chrome, page: str) -> None:
    browser.get("about:blank")
    requests(browser)
    browser.get_log("browser")
    browser.get(page)
    assert [address for address in requests(browser) if not address.startswith("data:")] == [page]
    assert browser.get_log("browser") == [], "no policy was violated, no script was stopped"
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_headings_tables_and_pictures_are_there_for_all_readers(browser: Chrome, page: str, width: int) -> None:
    show(browser, page, width=width)
    assert [each.text for each in browser.find_elements(By.TAG_NAME, "h1")] == [headline(verdict())]
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert roles.count("table") == 3 and roles.count("rowheader") == 12 + 3
    assert roles.count("columnheader") == 6 + 6 + 2 or width == 390
    images = [node for node in tree if node["role"]["value"] == "image" and not node["ignored"]]
    assert len(images) == 1 and images[0]["name"]["value"] and images[0]["description"]["value"]


@pytest.mark.parametrize("width", [390, 320, 1280])
def test_nothing_is_wider_than_the_screen(browser: Chrome, page: str, width: int) -> None:
    show(browser, page, width=width)
    script = """return [document.documentElement.scrollWidth, [...document.querySelectorAll('main *')].filter(each =>
      each.getClientRects().length && each.getBoundingClientRect().right > innerWidth + 1).length]"""
    assert browser.execute_script(script) <= [width, 0]
    assert len([svg for svg in browser.find_elements(By.CSS_SELECTOR, "svg.picture") if svg.is_displayed()]) == 1


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("decided", [True, False])
def test_labels_of_the_picture_do_not_overlap_as_drawn(
    browser: Chrome, tmp_path: Path, width: int, decided: bool
) -> None:
    path = tmp_path / "verdict.html"
    path.write_text(verdict_html(verdict() if decided else undecided()), "utf-8")
    show(browser, path.as_uri(), width=width)
    (labels,) = browser.execute_script(LABELS)
    assert len(labels) > 10
    for at, (left, top, right, bottom, text) in enumerate(labels):
        for other in labels[:at]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] + 3 or other[3] <= top + 3
            assert apart, (text, other[4])
