"""What the page Search writes as HTML, without a browser."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.pages.search import card, highlight
from tests.support.choice.searched import HOSTILE


def text_of(shown: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


@pytest.mark.parametrize("query", ["window hacked", HOSTILE, "img"])
def test_a_card_has_only_its_own_tags(query: str) -> None:
    """Whatever stands in the document's id, title and text, marked or not, short or cut."""
    for text in (HOSTILE, f"{HOSTILE} " * 60):
        shown = card(f'"><script>{HOSTILE}.md#0-9', HOSTILE, text, query, "1")
        tags = set(re.findall(r"<\s*(\w+)", shown))
        assert tags <= {"article", "div", "span", "p", "mark"} and "mark" in tags
        assert HOSTILE in text_of(shown)


@given(st.text(max_size=2_000), st.text(max_size=50))
def test_the_parts_are_the_text(text: str, query: str) -> None:
    assert "".join(part.text for part in highlight(text, query)) == text


def test_words_are_equal_if_their_stems_are() -> None:
    found = highlight("Resetting pumps, or the pumping of it: RESET a PumpX", "how to reset the pump of it")
    assert [part.text for part in found if part.marked] == ["Resetting", "pumps", "pumping", "RESET"]
    assert not any(part.marked for part in highlight("how to do it", "how to reset it")), "function words say nothing"
    assert [part.text for part in highlight("how is it done", "how is it") if part.marked] == ["how", "is", "it"]
