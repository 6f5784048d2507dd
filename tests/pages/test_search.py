"""What the page Search writes as HTML, without a browser."""

import html
import re

from midmask.pages.search import card
from tests.support.choice.searched import HOSTILE


def text_of(shown: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


def test_a_card_has_only_its_own_tags() -> None:
    """Whatever stands in the document's id, title and text, short or cut."""
    for text in (HOSTILE, f"{HOSTILE} " * 60):
        shown = card(f'"><script>{HOSTILE}.md#0-9', HOSTILE, text, "1")
        tags = set(re.findall(r"<\s*(\w+)", shown))
        assert tags <= {"article", "div", "span", "p"}
        assert HOSTILE in text_of(shown)
