"""Titles as queries: the short name that an author gave to a passage. The title is hidden from the passage, and so is
its copy where the text begins with it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from midmask.queries.made import MadeQuery, Passage

PATH = " \u203a "
"""Stands between the headings above a passage of a document."""

FEWEST_WORDS, MOST_WORDS = 2, 20


class TitleQueries:
    """The title; of a path of headings the last one, with the one above if it is a single word. One query at most for
    a passage: none where the title is shared by many passages, or has fewer than 2 words or more than 20.

    Args:
        shared: title -> how many passages of the collection have it.
        copies: largest number of passages that may share it.
    """

    def __init__(self, shared: Mapping[str, int], copies: int) -> None:
        self._shared, self._copies = shared, copies

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        for passage in passages:
            text = title_query(passage.title)
            if text and self._shared[passage.title] <= self._copies:
                yield MadeQuery(passage.doc_id, text, "titles", hidden=_copy(passage, text), hides_title=True)


def _copy(passage: Passage, query: str) -> tuple[int, int] | None:
    """Characters of the title, or else of the query, where the text begins with it, whatever the case."""
    for title in (passage.title, query):
        words = r"\W+".join(map(re.escape, re.findall(r"\w+", title)))
        found = re.match(rf"\W*{words}\b[^\w\s]*", passage.text, re.IGNORECASE) if words else None
        if found:
            return 0, found.end()
    return None


def title_query(title: str) -> str:
    """The query that a title makes; "" if it is too short or too long for one."""
    headings = [" ".join(heading.split()) for heading in title.split(PATH) if heading.strip()]
    last = headings[-1] if headings else ""
    if len(headings) > 1 and len(last.split()) == 1:
        last = f"{headings[-2]} {last}"
    return last if FEWEST_WORDS <= len(last.split()) <= MOST_WORDS else ""
