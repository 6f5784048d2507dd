"""What the page Search writes as HTML, without a browser."""

import html
import re

import pytest

from midmask.pages.search import card
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
