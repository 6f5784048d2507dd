"""A passage as a page of results shows it: the part with most words of the query, its words marked, and where the
passage comes from.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from midmask.retrieve.bm25 import WORD

COMMON = frozenset(
    "a about an and are as at be by can did do does for from had has have how i if in into is it its me my no not of "
    "on or our s so t than that the their them then there these they this to was we were what when where which who why "
    "will with would you your".split()
)
"""Words of a query that are not marked: they stand in nearly every passage."""

ORIGIN = re.compile(r"(?P<file>.+)#(?P<start>\d+)-(?P<stop>\d+)", re.DOTALL)


class TextPart(NamedTuple):
    """A stretch of a text. marked: whether it is a word of the query."""

    text: str
    marked: bool


@dataclass(frozen=True)
class Origin:
    """Where a passage comes from. start, stop: its characters in the file; None where the id does not name any."""

    file: str
    start: int | None = None
    stop: int | None = None


def origin_of(doc_id: str) -> Origin:
    """The file and characters that a document id such as `guide/install.md#1200-1980` names."""
    found = ORIGIN.fullmatch(doc_id)
    if found is None or int(found["start"]) > int(found["stop"]):
        return Origin(unquote(doc_id))
    return Origin(unquote(found["file"]), int(found["start"]), int(found["stop"]))


def marked_parts(text: str, query: str) -> list[TextPart]:
    """The text cut into parts that join to it again; words with the stem of a word of the query are marked. Of a query
    of common words alone, all words are.
    """
    import Stemmer

    stem = Stemmer.Stemmer("english").stemWord
    asked = re.findall(WORD, query.lower())
    wanted = {stem(word) for word in asked if word not in COMMON} or {stem(word) for word in asked}
    parts, end = [], 0
    for found in re.finditer(WORD, text):
        if stem(found.group().lower()) in wanted:
            if found.start() > end:
                parts.append(TextPart(text[end : found.start()], False))
            parts.append(TextPart(found.group(), True))
            end = found.end()
    return [*parts, TextPart(text[end:], False)] if end < len(text) or not parts else parts


def snippet(text: str, query: str, length: int = 320) -> list[TextPart]:
    """About `length` characters of a text, around most of the query's words, as marked parts; an ellipsis where the
    text goes on. A text that is hardly longer is given whole.
    """
    if len(text) <= length * 5 // 4:
        return marked_parts(text, query)
    start = _densest(marked_parts(text, query), length)
    start = 0 if start < length // 8 else _word_start(text, start)
    stop = min(len(text), start + length)
    stop = len(text) if len(text) - stop < length // 8 else _word_end(text, stop)
    before, after = "… " if start else "", " …" if stop < len(text) else ""
    return marked_parts(f"{before}{text[start:stop].strip()}{after}", query)


def _densest(parts: list[TextPart], length: int) -> int:
    """Where a window of `length` characters begins that holds most different marked words, the earliest one."""
    places: list[tuple[int, str]] = []
    at = 0
    for part in parts:
        if part.marked:
            places.append((at, part.text.lower()))
        at += len(part.text)
    best, begin = 0, 0
    for place, _ in places:
        count = len({word for other, word in places if place <= other < place + length * 3 // 4})
        if count > best:
            best, begin = count, max(0, place - length // 8)
    return begin


def _word_start(text: str, at: int) -> int:
    """The beginning of the word at a position; at most 40 characters before it."""
    space = max(text.rfind(" ", max(0, at - 40), at), text.rfind("\n", max(0, at - 40), at))
    return space + 1 if space >= 0 else at


def _word_end(text: str, at: int) -> int:
    space = text.find(" ", at, at + 40)
    return space if space >= 0 else at
