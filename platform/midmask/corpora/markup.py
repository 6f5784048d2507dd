"""Markup of TREC documents, read in one pass: time grows with the length of a text, whatever is left unclosed in it.

A regular expression such as `<!--.*?-->` looks for its end from every place where it could begin; where there is no
end, that is quadratic. So the texts in here are first cut where the last end stands.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache

_TAG = re.compile(r"</?[A-Za-z][^>]*>")
_TAG_OR_COMMENT = re.compile(r"</?[A-Za-z][^>]*>|<!--.*?-->", re.DOTALL)


def plain_text(text: str) -> str:
    """The text with each tag and each comment replaced by a blank, and with its entities resolved."""
    commented, rest = _cut_after(text, "-->")
    tagged, rest = _cut_after(rest, ">")
    return html.unescape(_TAG_OR_COMMENT.sub(" ", commented) + _TAG.sub(" ", tagged) + rest).strip()


def elements(text: str, tags: tuple[str, ...]) -> Iterator[tuple[int, int, int, int]]:
    """(begin, start of the content, stop of the content, end) of the elements with one of these tags, in order.

    Upper and lower case are one. An element ends at the first closing tag of its name, whatever stands in between; one
    without is none.
    """
    marks = list(_marks(tags).finditer(_cut_after(text, ">")[0]))
    closing: dict[str, list[int]] = {}
    for number, mark in enumerate(marks):
        if mark["close"]:
            closing.setdefault(mark["close"].lower(), []).append(number)
    place = 0
    while place < len(marks):
        mark = marks[place]
        ends = closing.get((mark["open"] or "").lower(), [])
        index = bisect_left(ends, place)
        if mark["open"] and index < len(ends):
            place = ends[index]
            yield mark.start(), mark.end(), marks[place].start(), marks[place].end()
        place += 1


@cache
def _marks(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(tags)
    return re.compile(rf"<(?:(?P<open>{names})\b[^<>]*|/(?P<close>{names}))>", re.IGNORECASE)


def _cut_after(text: str, mark: str) -> tuple[str, str]:
    """The text up to and with the last `mark`, and what follows; without a mark, all of it follows."""
    place = text.rfind(mark)
    stop = 0 if place < 0 else place + len(mark)
    return text[:stop], text[stop:]
