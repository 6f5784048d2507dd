"""A verdict as a page, read by Python's own parser: nothing can be loaded or run, and numbers are the data's."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from midmask.choice.report_html import POLICY, verdict_html
from midmask.choice.report_style import DARK, LIGHT, style_sheet
from midmask.choice.report_text import GAINS
from midmask.choice.verdict import QueryCounts, Recommendation, Verdict
from midmask.choice.wording import duration, headline, readable, signed, size
from tests.support.verdicts import HOSTILE, HOSTILE_PASSAGE, HOSTILE_QUERY, PUMP, undecided, verdict

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Elements with their attributes, texts by the elements they are in, and rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def inside(self, tag: str) -> str:
        return "".join(text for where, text in self.texts if tag in where)

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def empty() -> Verdict:
    one = replace(verdict(), won=(), lost=(), not_tried={}, limits=(), systems=verdict().finalists)
    return replace(one, queries=QueryCounts({}, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("one", [verdict(), undecided(), empty()], ids=["decided", "undecided", "empty"])
def test_nothing_can_be_loaded_or_run(one: Verdict) -> None:
    page = Page(verdict_html(one))
    assert not {tag for tag, _ in page.elements} & {"script", "iframe", "object", "embed", "base", "form", "img"}
    names = {name for _, attributes in page.elements for name in attributes}
    assert not any(name.startswith("on") for name in names) and not names & {"src", "srcset", "action", "style"}
    assert [each["href"] for _, each in page.elements if "href" in each] == ["data:,"]
    policy = next(each for each in page.named("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"] == POLICY
    assert POLICY.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert page.elements.index(("meta", policy)) == 3, "right after the encoding, before anything could load"


def test_every_number_of_the_tables_is_the_datas() -> None:
    one = verdict()
    page = Page(verdict_html(one))
    finalists = page.rows[1:7]
    gains = [name.capitalize() for name in GAINS]
    assert page.rows[0] == ["Rank", "System", *gains, "Computing", "Per passage"] == page.rows[7]
    for row, system in zip([*finalists, *page.rows[8:14]], [*one.finalists, *one.given_up], strict=True):
        made = f"{signed(system.made_gain)} [{signed(system.made_low)}, {signed(system.made_high)}]"
        gain = f"{signed(system.gain)} [{signed(system.gain_low)}, {signed(system.gain_high)}]"
        tag = " take this" if system == one.recommended else ""
        assert row == [
            str(system.rank),
            readable(system.label) + tag,
            *(("baseline", "baseline") if system.label == one.baseline else (made, gain)),
            duration(system.seconds),
            size(system.bytes_per_passage),
        ]
    assert page.rows[15:] == [[name, f"{count:,}"] for name, count in one.queries.source.items()]


def test_it_is_told_by_heading_roles_and_marks() -> None:
    page = Page(verdict_html(verdict()))
    assert all(each.get("scope") in ("col", "row") for each in page.named("th"))
    systems = [each for each in page.named("table") if each.get("class") == "systems"]
    assert len(systems) == 2 and all(each["role"] == "table" for each in systems)
    assert all(each["role"] == "cell" for each in page.named("td")[:30])
    assert page.named("html") == [{"lang": "en"}] and len(page.named("h1")) == 1
    assert page.inside("h1").replace("\xa0", " ") == headline(verdict())
    marked = {text for where, text in page.texts if where[-1:] == ("mark",)}
    assert {"pump", "reset", "Resetting", "relay", "temperature", "bearings", "valve"} <= marked
    assert PUMP in "".join(text for where, text in page.texts if "details" in where), "the whole passage on demand"


def test_hostile_texts_are_shown_as_they_are() -> None:
    one = verdict()
    page = Page(verdict_html(one))
    assert readable(HOSTILE_QUERY) in page.inside("h3")
    articles = page.inside("blockquote")
    assert readable(HOSTILE_PASSAGE) in articles and HOSTILE in articles
    assert HOSTILE in page.inside("td") + page.inside("th") and HOSTILE in page.inside("li")
    assert HOSTILE in page.inside("desc")
    everywhere = {name: HOSTILE + '"' for name in ("corpus", "baseline", "measure", "model", "collection", "command")}
    reason = Recommendation("retromae", "dense", True, HOSTILE)
    text = verdict_html(replace(one, **everywhere, recommendation=reason))
    assert Page(text) and "<script" not in text
    verdict_html(one).encode("utf-8")


TEXT_ON = (
    *(("ink", "paper"), ("ink", "panel"), ("ink", "mark"), ("quiet", "paper"), ("quiet", "panel")),
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


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_shapes_can_be_told_from_what_they_stand_on(palette: dict[str, str]) -> None:
    for text, ground in TEXT_ON:
        assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for shape, ground in SHAPE_ON:
        assert contrast(palette[shape], palette[ground]) >= 3, (shape, ground)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005), "as known"


def test_both_palettes_have_the_colours_that_the_style_sheet_uses() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", style_sheet()))
    assert used == set(LIGHT) == set(DARK)
    assert "url(" not in style_sheet() and "@import" not in style_sheet()
