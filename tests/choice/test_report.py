"""A verdict as a page, as Markdown and in sentences: nothing can be loaded or run, and numbers are the data's."""

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from midmask.choice.picture import front, picture
from midmask.choice.report import (
    GAINS,
    TEMPLATES,
    certainty,
    code,
    headline,
    readable,
    score,
    signed,
    verdict_html,
    verdict_markdown,
)
from midmask.choice.verdict import QueryCounts, Recommendation, SystemEstimate, Verdict
from midmask.core.words import duration, size
from midmask.errors import UserError
from tests.support.dashboards.browser import chromium
from tests.support.verdicts import HOSTILE, HOSTILE_PASSAGE, HOSTILE_QUERY, systems, undecided, verdict


class Page:
    """Read as XML, which shows that every element is closed and nested."""

    def __init__(self, text: str) -> None:
        strict = re.sub(r"<((?:meta|link|img|br)\b[^>]*?)/?>", r"<\1/>", text.removeprefix("<!doctype html>"))
        root = ElementTree.fromstring(strict.replace("xlink:", "xlink_").replace("xmlns=", "data-xmlns="))
        self.elements = list(root.iter())
        self.rows = [["".join(cell.itertext()) for cell in row] for row in self.named("tr")]

    def named(self, tag: str) -> list[ElementTree.Element]:
        return [each for each in self.elements if each.tag == tag]

    def inside(self, tag: str) -> str:
        return "".join(text for each in self.named(tag) for text in each.itertext())


def empty() -> Verdict:
    one = replace(verdict(), not_tried={}, limits=(), systems=verdict().finalists)
    return replace(one, queries=QueryCounts({}, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("one", [verdict(), undecided(), empty()], ids=["decided", "undecided", "empty"])
def test_nothing_can_be_loaded_or_run(one: Verdict) -> None:
    page = Page(verdict_html(one))
    assert not {each.tag for each in page.elements} & {"script", "iframe", "object", "embed", "base", "form", "img"}
    names = {name for each in page.elements for name in each.attrib}
    assert not any(name.startswith("on") for name in names) and not names & {"src", "srcset", "action"}
    assert [each.attrib["href"] for each in page.elements if "href" in each.attrib] == ["data:,"]
    policy = next(each for each in page.named("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.attrib["content"].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert page.elements.index(policy) == 3, "right after the encoding, before anything could load"


def gains_of(system: SystemEstimate) -> list[str]:
    """Of the made queries and of people's, with their intervals."""
    ends = (system.made_gain, system.made_low, system.made_high), (system.gain, system.gain_low, system.gain_high)
    return [f"{signed(gain)} [{signed(low)}, {signed(high)}]" for gain, low, high in ends]


def test_every_number_of_the_tables_is_the_datas() -> None:
    one = verdict()
    page = Page(verdict_html(one))
    finalists = page.rows[1:7]
    gains = [name.capitalize() for name in GAINS]
    assert page.rows[0] == ["Rank", "System", *gains, "Computing", "Per passage"] == page.rows[7]
    for row, system in zip([*finalists, *page.rows[8:14]], [*one.finalists, *one.given_up], strict=True):
        tag = " take this" if system == one.recommended else ""
        assert row == [
            str(system.rank),
            readable(system.label) + tag,
            *(["baseline"] * 2 if system.label == one.baseline else gains_of(system)),
            duration(system.seconds),
            size(system.bytes_per_passage),
        ]
    assert page.rows[15:] == [[name, f"{count:,}"] for name, count in one.queries.source.items()]


def test_hostile_texts_are_shown_as_they_are() -> None:
    one = verdict()
    page = Page(verdict_html(one))
    limits = page.inside("li")
    assert readable(HOSTILE_QUERY) in limits and readable(HOSTILE_PASSAGE) in limits
    assert HOSTILE in page.inside("td") + page.inside("th") and HOSTILE in page.inside("li")
    assert HOSTILE in page.inside("ol")
    everywhere = {name: HOSTILE + '"' for name in ("corpus", "baseline", "measure", "model", "collection", "command")}
    reason = Recommendation("retromae", "dense", True, HOSTILE)
    text = verdict_html(replace(one, **everywhere, recommendation=reason))
    assert Page(text) and "<script" not in text
    verdict_html(one).encode("utf-8")


TEXT_ON = (
    *(("ink", "paper"), ("ink", "panel"), ("quiet", "paper"), ("quiet", "panel")),
    *(("accent", "paper"), ("accent", "panel")),
)
"""(colour of a text, colour that it stands on)."""

SHAPE_ON = (("accent", "paper"), ("front", "paper"), ("base", "paper"), ("other", "paper"))
"""(colour of points, bars and lines that carry meaning, colour that they stand on)."""


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


STYLE = str(TEMPLATES.get_template("verdict.css").render())
LIGHT, DARK = (dict(re.findall(r"--(\w+): (#\w+);", part)) for part in STYLE.split("@media", 2)[:2])


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_shapes_can_be_told_from_what_they_stand_on(palette: dict[str, str]) -> None:
    for text, ground in TEXT_ON:
        assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for shape, ground in SHAPE_ON:
        assert contrast(palette[shape], palette[ground]) >= 3, (shape, ground)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005), "as known"


def test_both_palettes_have_the_colours_that_the_page_uses() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", verdict_html(verdict())))
    assert used == set(LIGHT) == set(DARK)
    assert "url(" not in STYLE and "@import" not in STYLE


CELL = re.compile(r"(?<!\\)\|")


def tables_of(text: str) -> list[list[list[str]]]:
    """Rows of cells of each table, the head first, the rule left out."""
    found: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and all(line.startswith("|") for line in lines):
            found.append([[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines[:1] + lines[2:]])
    return found


def test_every_number_of_the_markdown_tables_is_the_datas() -> None:
    finalists, given_up, sources = tables_of(verdict_markdown(verdict()))
    assert finalists[0] == ["rank", "system", "representation", *GAINS, "computing", "per passage"] == given_up[0]
    assert (len(finalists), len(given_up)) == (7, 7)
    for row, one in zip([*finalists[1:], *given_up[1:]], systems(), strict=True):
        shown = ["baseline"] * 2 if one.label == "none · dense" else gains_of(one)
        costs = [duration(one.seconds), size(one.bytes_per_passage)]
        assert [row[0], *row[2:]] == [str(one.rank), one.representation, *shown, *costs]
    assert [row[1] for row in finalists[1:]] == ["**retromae**", "dupmae", "lexmae", "none", "mlm", "bm25"]
    assert [row[1] for row in sources[1:]] == [f"{count:,}" for count in verdict().queries.source.values()]


def test_hostile_texts_stay_texts_in_markdown() -> None:
    text = verdict_markdown(verdict())
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<" not in prose, "no HTML"
    assert not re.search(r"(?<!\\)\]\(", prose), "no link or image"
    assert "\\*\\*bold\\*\\*" in prose and "\n# No heading" not in prose and "\n| no |" not in prose
    assert text.count("```") == 4, "a text's own fence opens nothing"
    text.encode("utf-8")
    odd = replace(systems()[1], system=f"a|b`c`\n{HOSTILE}")
    one = replace(verdict(), systems=(systems()[0], odd, *systems()[2:]))
    assert all(len(row) == 7 for row in tables_of(verdict_markdown(one))[0])


def test_a_fence_is_longer_than_what_is_in_it() -> None:
    assert code("a ````b", "sh") == "`````sh\na ````b\n`````"
    assert code("plain", "") == "```\nplain\n```"


def test_where_bm25_wins_the_model_is_the_best_encoders() -> None:
    one = replace(verdict(), recommendation=Recommendation("bm25", "bm25", True, ""))
    best = next(row for row in one.finalists if row.model)
    text = verdict_markdown(one)
    assert one.delivered == best and f"“{best.label}”, the best system with one" in text
    assert "“bm25” has no model: nothing was trained" in verdict_markdown(replace(one, model=""))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [*((0, "under 1 s"), (0.49, "under 1 s"), (0.6, "1 s"), (1, "1 s"), (59.4, "59 s"), (59.6, "1 min")),
     *((187, "3 min 7 s"), (240, "4 min"), (599.4, "9 min 59 s"), (600, "10 min"), (2_520, "42 min")),
     *((3_599, "1 h"), (4_330, "1 h 12 min"), (36_000, "10 h"), (93_600, "26 h"), (172_800, "2 days")),
     *((273_600, "3 days 4 h"), (math.inf, "not known"), (math.nan, "not known"))],
)  # fmt: skip
def test_times_as_people_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "plain", "with_sign"),
    [*((0.04312, "0.043", "+0.043"), (-0.0256, "\u22120.026", "\u22120.026"), (0.0, "0.000", "0.000")),
     *((-0.0004, "\u22120.000", "0.000"), (0.0004, "0.000", "0.000")),
     *((value, "not known", "not known") for value in (math.inf, math.nan))],
)  # fmt: skip
def test_measures_and_differences(value: float, plain: str, with_sign: str) -> None:
    assert (score(value), signed(value)) == (plain, with_sign)
    assert [size(own) for own in (0, 842.5, 1536, 1_234_567)] == ["0 B", "842 B", "1.5 kB", "1.2 MB"]


def test_what_no_file_can_hold_gets_a_mark() -> None:
    found = readable("a\x00b\ud800c\u202ed\u2066\n\té ポ")
    assert found == "a\ufffdb\ufffdc\ufffdd\ufffd\n\té ポ"
    found.encode("utf-8")


def test_the_headline_is_what_was_measured_and_what_other_collections_suggest_stands_apart() -> None:
    told, apart = headline(verdict()), certainty(verdict())
    assert all(one in told for one in ("“retromae · dense”", "+0.065", " 626 ", "+0.036 to +0.093", "1 h 12 min"))
    assert all(number in apart for number in ("squad, cranfield, pydocs", "+0.043", "+0.024 to +0.062", "88%"))
    assert "contains 0" not in apart and not {"+0.043", "+0.024"} & set(told.split())
    chosen = replace(verdict().systems[0], gain=0.067, gain_low=-0.043, gain_high=0.177, training="none")
    one = replace(verdict(), systems=(chosen, *verdict().systems[1:]))
    assert "+0.065" in headline(one) and "\u22120.043 to +0.177, which contains 0" in certainty(one)


def test_what_cannot_be_told_apart_and_only_the_cheapest_are_called_so() -> None:
    one = undecided()
    assert headline(one).startswith("Not distinguishable: take the cheapest, which is “none · dense”")
    assert "+0.009 nDCG@10" in certainty(one) and "\u22120.011 to +0.029, which contains 0" in certainty(one)
    dearer = replace(one, recommendation=Recommendation("mlm", "dense", False, ""))
    assert headline(dearer).startswith("Not distinguishable: take “mlm · dense”, for 51 min of computing")
    tied = replace(one, systems=(*one.systems[:5], replace(one.systems[5], gain_high=0.01)))
    assert "cheapest" not in headline(tied), "BM25 is as good for all that is known, and costs nothing"
    loss = {"gain": -0.1, "gain_low": -0.2, "gain_high": -0.01}
    worse = tuple(each if each.system == "none" else replace(each, **loss) for each in one.systems)
    assert headline(replace(one, systems=worse)).startswith("Take “none · dense”"), "it beats all others"


def test_a_verdict_without_middle_training_opens_with_it() -> None:
    one = verdict()
    without = replace(one, systems=tuple(replace(each, training="fine-tuning") for each in one.systems))
    assert headline(without).startswith("No middle training was compared: “Not tried” says why. Take")
    assert headline(one).startswith("Take"), "some were compared"
    assert headline(replace(without, not_tried={})).startswith("Take"), "none was asked for"


def test_commands_quote_names() -> None:
    one = replace(verdict(), folder="a b'; rm -rf")
    assert """midmask search 'a b'"'"'; rm -rf'\n""" in verdict_markdown(one)


@pytest.mark.parametrize("one", [verdict(), undecided()])
def test_what_is_written_is_read(one: Verdict) -> None:
    written = tuple(each.replace("\ud800", "?") for each in one.limits)
    assert Verdict.from_json(one.as_json()) == replace(one, limits=written)
    odd = replace(one.systems[0], made_low=-math.inf, made_gain=math.nan)
    (again,) = Verdict.from_json(replace(one, systems=(odd,)).as_json()).systems
    assert math.isnan(again.made_gain) and again.made_low == -math.inf
    turned = replace(one, systems=one.systems[::-1])
    assert [each.rank for each in (*turned.finalists, *turned.given_up)] == [*range(1, 13)]


def test_the_recommended_system_has_that_representation_too() -> None:
    one = replace(verdict(), recommendation=Recommendation("none", "splade", True, ""))
    assert one.recommended.rank == 10
    missing = replace(verdict(), recommendation=Recommendation("retromae", "splade", True, ""))
    with pytest.raises(UserError, match="unknown recommended system 'retromae · splade'; did you mean"):
        _ = missing.recommended


FINITE = st.floats(-0.5, 0.5)
SIZES = ((900, 420), (358, 400))


def marks(
    one: Verdict, systems: Sequence[SystemEstimate], width: int = 900, height: int = 420
) -> dict[int, list[float]]:
    """Rank -> x and y of its number."""
    root = ElementTree.fromstring(f'<svg xmlns:xlink="link">{picture(one, systems, width, height)}</svg>')
    numbers = [text for text in root.iter("text") if str(text.text).isdecimal() and text.text != "0"]
    return {int(str(text.text)): [float(text.attrib[axis]) for axis in "xy"] for text in numbers}


@pytest.mark.parametrize("size", SIZES)
def test_each_rank_stands_where_its_gain_and_time_are(size: tuple[int, int]) -> None:
    found = marks(verdict(), verdict().systems, *size)
    assert found.keys() == {each.rank for each in verdict().systems}
    assert all(0 < x < size[0] and 0 < y < size[1] for x, y in found.values())
    (x, y), trained = zip(*found.values(), strict=True), [each for each in verdict().systems if each.system != "bm25"]
    assert max(x) - min(x) > size[0] / 2 and max(y) - min(y) > size[1] / 4
    gains = [found[each.rank][1] for each in sorted(verdict().systems, key=lambda each: -each.made_gain)]
    assert gains == sorted(gains)
    for first, second in itertools.combinations(trained, 2):
        (at, _), (other, _) = found[first.rank], found[second.rank]
        ratio = (math.log(second.seconds / first.seconds)) / (other - at)
        assert ratio == pytest.approx(math.log(9_420 / 1_270) / (found[3][0] - found[4][0]), rel=0.02)
    assert found[6][0] < found[4][0], "what takes no time stands left of all trainings"


def test_equal_verdicts_give_equal_pictures_in_the_pages_colours_alone() -> None:
    one = verdict()
    drawn = picture(one, one.systems, 900, 420)
    assert drawn == picture(one, one.systems, 900, 420)
    assert set(re.findall(r"(?:fill|stroke): (?!none|var)([^;\"]+)", drawn)) == set()
    assert "script" not in drawn, "names stand beside it"


def test_the_front_is_what_nothing_beats() -> None:
    assert [each.system for each in front(verdict())] == ["bm25", "none", "retromae"]


@settings(max_examples=20)
@given(st.lists(st.tuples(FINITE, FINITE, FINITE, st.floats(0, 1e8), st.booleans()), min_size=1, max_size=14))
def test_whatever_the_numbers_it_is_drawn_within_its_frame(rows: list[tuple[float, float, float, float, bool]]) -> None:
    found = []
    for rank, (gain, down, up, seconds, finalist) in enumerate(rows, 1):
        ends = (gain, gain - abs(down), gain + abs(up))
        found.append(SystemEstimate(f"s{rank}", "", rank, *ends, *ends, seconds, 0, "", finalist, *ends, joined=False))
    one = replace(verdict(), systems=(*verdict().systems[:1], *found))
    shown = marks(one, found)
    assert len(shown) == len(found) and all(0 < x < 900 and 0 < y < 420 for x, y in shown.values())


def test_an_endless_interval_ends_with_the_picture() -> None:
    first, *others = verdict().systems
    one = replace(verdict(), systems=(replace(first, made_low=-math.inf, made_high=math.inf), *others))
    assert first.rank in marks(one, one.systems)


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
    assert len(images) == 1 and images[0]["name"]["value"]
