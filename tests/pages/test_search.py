"""What the page Search writes as HTML, without a browser."""

import html
import re

import pytest

from midmask.pages.search import card, change
from tests.support.choice.searched import HOSTILE


def text_of(shown: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


@pytest.mark.parametrize("query", ["window hacked", HOSTILE, "img"])
def test_a_card_has_only_its_own_tags(query: str) -> None:
    """Whatever stands in the document's id, title and text, marked or not, short or cut."""
    for text in (HOSTILE, f"{HOSTILE} " * 60):
        shown = card(f'"><script>{HOSTILE}.md#0-9', HOSTILE, text, query, "1", "")
        tags = set(re.findall(r"<\s*(\w+)", shown))
        assert tags <= {"article", "div", "span", "p", "details", "summary", "mark"} and "mark" in tags
        assert HOSTILE in text_of(shown) and ("details" in tags) == (text != HOSTILE)


@pytest.mark.parametrize(
    ("rank", "ranks", "shown"),
    [(1, 3, "↑3"), (9, -2, "↓2"), (4, 0, "="), (1, None, "new"), (2, 8, "↑8"), (2, 9, "new")],
)
def test_a_rank_change_is_of_what_the_other_list_shows(rank: int, ranks: int | None, shown: str) -> None:
    assert text_of(change(rank, ranks)) == shown
