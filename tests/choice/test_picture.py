"""The picture's geometry against the data; the page of a verdict in a real headless Chromium, from disk."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from midmask.choice.label_placement import LabelBox, WantedLabel, place_labels
from midmask.choice.picture import NARROW, WIDE, Canvas, front, picture
from midmask.choice.report_html import verdict_html
from midmask.choice.verdict import SystemEstimate, Verdict
from midmask.choice.wording import headline, readable
from tests.support.dashboards.browser import chromium
from tests.support.verdicts import undecided, verdict

FINITE = st.floats(-0.5, 0.5)


def drawn(one: Verdict, canvas: Canvas = WIDE) -> ElementTree.Element:
    return ElementTree.fromstring(picture(one, canvas)[0])


def points(root: ElementTree.Element) -> dict[str, tuple[float, float]]:
    found = {}
    for group in root.iter("g"):
        shape = group[1].attrib
        x = float(shape["cx"]) if "cx" in shape else float(shape["x"]) + 5
        y = float(shape["cy"]) if "cy" in shape else float(shape["y"]) + 5
        found[str(group[0].text).split(": ")[0]] = (x, y)
    return found


def scale(root: ElementTree.Element) -> tuple[float, float]:
    """Zero's place and units per gain, from the axis's numbers alone."""
    ticks = [
        (float(str(text.text).replace("\u2212", "-")), float(text.attrib["y"]) - 4)
        for text in root.iter("text")
        if text.attrib["class"] == "tick" and text.attrib["text-anchor"] == "end"
    ]
    (low, at_low), (high, at_high) = ticks[0], ticks[-1]
    unit = (at_high - at_low) / (high - low)
    return at_low - unit * low, unit


@pytest.mark.parametrize("canvas", [WIDE, NARROW])
def test_points_and_bars_stand_where_the_axis_says(canvas: Canvas) -> None:
    one, root = verdict(), drawn(verdict(), canvas)
    zero, unit = scale(root)
    shown = [each for each in one.systems if each.finalist or canvas is WIDE]
    found = points(root)
    assert set(found) == {readable(each.label) for each in shown}
    bars = [each.attrib for each in root.iter("line") if each.attrib["class"].startswith("bar")]
    for each in shown:
        x, y = found[each.label]
        assert y == pytest.approx(zero + unit * each.made_gain, abs=0.2)
        ends = next(bar for bar in bars if abs(float(bar["x1"]) - x) < 0.06)
        assert float(ends["y1"]) == pytest.approx(zero + unit * each.made_high, abs=0.2)
        assert float(ends["y2"]) == pytest.approx(zero + unit * each.made_low, abs=0.2)


def test_times_are_logarithmic_after_the_break() -> None:
    found = points(drawn(verdict()))
    trained = sorted((each.seconds, found[each.label][0]) for each in verdict().systems if each.system != "bm25")
    (first, at_first), (last, at_last) = trained[0], trained[-1]
    for seconds, x in trained:
        share = math.log(seconds / first) / math.log(last / first)
        assert x == pytest.approx(at_first + share * (at_last - at_first), abs=0.2)
    assert found["bm25"][0] < at_first and any(each.get("class") == "break" for each in drawn(verdict()).iter("path"))


def test_the_front_is_what_nothing_beats() -> None:
    for one in (verdict(), undecided()):
        finalists = [each for each in one.systems if each.finalist]
        wanted = [
            each
            for each in finalists
            if not any(
                other.gain >= each.gain and other.seconds <= each.seconds and other != each for other in finalists
            )
        ]
        assert front(one) == sorted(wanted, key=lambda each: each.seconds)
    assert [each.system for each in front(verdict())] == ["bm25", "none", "retromae"]
    root = drawn(verdict())
    path = next(each.attrib["d"] for each in root.iter("path") if each.attrib["class"] == "front")
    steps = [float(number) for number in re.findall(r"[\d.]+", path)]
    corners = points(root)
    assert steps[:2] == pytest.approx(corners["bm25"], abs=0.11)
    assert steps[2:4] == pytest.approx(corners["none · dense"], abs=0.11)
    assert steps[4:6] == pytest.approx(corners["retromae · dense"], abs=0.11)


@given(st.lists(st.tuples(FINITE, FINITE, FINITE, st.floats(0, 1e8), st.booleans()), min_size=1, max_size=14))
def test_whatever_the_numbers_it_is_drawn_within_its_frame(rows: list[tuple[float, float, float, float, bool]]) -> None:
    found = []
    for rank, (gain, down, up, seconds, finalist) in enumerate(rows, 1):
        ends = (gain, gain - abs(down), gain + abs(up))
        found.append(SystemEstimate(f"s{rank}", "", rank, *ends, *ends, seconds, 0, "", finalist, *ends))
    one = replace(verdict(), systems=(*verdict().systems[:1], *found))
    for canvas in (WIDE, NARROW):
        root = drawn(one, canvas)
        assert all(
            canvas.left <= x <= canvas.width and 0 <= y <= canvas.height - canvas.bottom
            for x, y in points(root).values()
        )


WITHIN = LabelBox(0, 0, 400, 300)
PLACES = st.lists(st.tuples(st.floats(0, 400), st.floats(0, 300), st.floats(5, 150)), max_size=14)


@given(PLACES)
def test_no_label_covers_another_a_point_or_the_frame(points: list[tuple[float, float, float]]) -> None:
    labels = [WantedLabel(x, y, width, 14) for x, y, width in points]
    marks = [LabelBox(x - 5, y - 5, x + 5, y + 5) for x, y, _ in points]
    found = place_labels(labels, marks, WITHIN)
    assert len(found) == len(labels)
    boxes = [box for box in found if box is not None]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert not any(box.overlaps(mark) for box in boxes for mark in marks)
    assert all(box.left >= 0 and box.top >= 0 and box.right <= 400 and box.bottom <= 300 for box in boxes)
    for box, label in zip(found, labels, strict=True):
        if box is not None:
            assert (abs(box.right - box.left - label.width), abs(box.bottom - box.top - 14)) < (1e-6, 1e-6)


def test_a_long_label_stands_beside_its_bar_and_not_on_the_line_that_goes_on_from_its_point() -> None:
    bar, line = LabelBox(97, 20, 103, 280), LabelBox(100, 149, 400, 151)
    (found,) = place_labels([WantedLabel(100, 150, 250, 14)], [bar], WITHIN, [line])
    assert found is not None and not found.overlaps(line) and not found.overlaps(bar)


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


@pytest.mark.parametrize("width", [390, 320, 1280])
def test_headings_tables_and_pictures_are_there_for_all_readers(browser: Chrome, page: str, width: int) -> None:
    """And nothing is wider than the screen."""
    show(browser, page, width=width)
    script = """return [document.documentElement.scrollWidth, [...document.querySelectorAll('main *')].filter(each =>
      each.getClientRects().length && each.getBoundingClientRect().right > innerWidth + 1).length]"""
    assert browser.execute_script(script) <= [width, 0]
    assert [each.text for each in browser.find_elements(By.TAG_NAME, "h1")] == [headline(verdict())]
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert roles.count("table") == 3 and roles.count("rowheader") == 12 + 3
    assert roles.count("columnheader") == 6 + 6 + 2 or width < 500
    images = [node for node in tree if node["role"]["value"] == "image" and not node["ignored"]]
    assert len(images) == 1 and images[0]["name"]["value"] and images[0]["description"]["value"]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("decided", [True, False])
def test_labels_of_the_picture_do_not_overlap_as_drawn(browser, tmp_path, width, decided) -> None:
    path = tmp_path / "verdict.html"
    path.write_text(verdict_html(verdict() if decided else undecided()), "utf-8")
    show(browser, path.as_uri(), width=width)
    (labels,) = browser.execute_script(LABELS)
    assert len(labels) > 10
    for at, (left, top, right, bottom, text) in enumerate(labels):
        for other in labels[:at]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] + 3 or other[3] <= top + 3
            assert apart, (text, other[4])
