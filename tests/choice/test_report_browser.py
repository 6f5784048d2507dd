"""The page of a verdict in a real headless Chromium, from disk: no request, no overflow, contrasts as measured."""

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

CONTRASTS = """
const parse = colour => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => { const f = [r, g, b].map(v => linear(v / 255));
  return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
const ground = node => { for (; node; node = node.parentElement) {
  const colour = parse(getComputedStyle(node).backgroundColor);
  if (colour[3] > 0) return colour; } return [255, 255, 255]; };
const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !node.getClientRects().length || node.closest("title, desc")) continue;
  const style = getComputedStyle(node), own = parse(node.closest("svg") ? style.fill : style.color);
  const [a, b] = [light(own), light(ground(node))].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), walk.currentNode.data.trim().slice(0, 40), parseFloat(style.fontSize)]);
}
return found;
"""

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


def show(browser: Chrome, address: str, *, width: int = 1280, dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
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


def test_the_policy_stops_what_would_ask_another_host(browser: Chrome, page: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    added = "<img src='http://127.0.0.1:9/a.png'><script>document.title = 'ran'</script></main>"
    broken.write_text(verdict_html(verdict()).replace("</main>", added), "utf-8")
    browser.get(page)
    browser.get_log("browser")
    browser.get(broken.as_uri())
    told = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert "Content Security Policy" in told and "127.0.0.1:9" in told and browser.title != "ran"


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


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_text_has_a_contrast_of_4_5(browser: Chrome, page: str, width: int, dark: bool) -> None:
    show(browser, page, width=width, dark=dark)
    found = browser.execute_script(CONTRASTS)
    assert len(found) > 150
    assert [each for each in found if each[0] < 4.5] == []
    assert min(size for _, _, size in found) >= 10
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 22, 26)" if dark else "rgb(253, 252, 249)")


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


def test_the_keyboard_opens_what_is_folded(browser: Chrome, page: str) -> None:
    show(browser, page)
    browser.get(page)
    folded = browser.find_element(By.TAG_NAME, "details")
    assert folded.get_attribute("open") is None
    folded.find_element(By.TAG_NAME, "summary").send_keys("\n")
    assert folded.get_attribute("open") is not None and "cotmae" in folded.text
