"""Excerpts of passages with a query's words marked, on a verdict's page and on the page of searches."""

import re
from typing import NamedTuple

from midmask.queries.plain_sources import FUNCTION_WORDS
from midmask.retrieve.bm25.words import WORD

LENGTH = 420
"""Characters of an excerpt, about."""


class TextPart(NamedTuple):
    """A part of a text, marked if it is a word of the query."""

    text: str
    marked: bool


class Excerpt(NamedTuple):
    """An excerpt of a passage, with its marked words."""

    parts: tuple[TextPart, ...]
    before: bool  # whether text before the excerpt was left out
    after: bool  # whether text after it was left out


def highlight(text: str, query: str) -> tuple[TextPart, ...]:
    """The text, cut where words of the query begin and end. Words are equal if their English stems are, as for BM25.
    Of a query of function words alone, all words are marked.
    """
    parts, end = [], 0
    for start, stop in _matches(text, query):
        parts += [TextPart(text[end:start], False), TextPart(text[start:stop], True)]
        end = stop
    parts.append(TextPart(text[end:], False))
    return tuple(part for part in parts if part.text)


def excerpt(text: str, query: str, length: int = LENGTH) -> Excerpt:
    """The part of `text` with the most of the query's words, about `length` characters, highlighted; the whole text if
    it is not much longer.
    """
    if len(text) <= 1.3 * length:
        return Excerpt(highlight(text, query), False, False)
    found = _matches(text, query)
    best = max(
        (start for start, _ in found),
        key=lambda start: len({text[a:b].lower() for a, b in found if start <= a and b <= start + length}),
        default=0,
    )
    start = _word_start(text, max(0, min(best - length // 8, len(text) - length)))
    stop = _word_start(text, min(len(text), start + length))
    return Excerpt(highlight(text[start:stop].strip(), query), start > 0, stop < len(text))


def _matches(text: str, query: str) -> list[tuple[int, int]]:
    import Stemmer

    stem = Stemmer.Stemmer("english").stemWord
    asked = re.findall(WORD, query.lower())
    wanted = {stem(word) for word in asked if word not in FUNCTION_WORDS} or {stem(word) for word in asked}
    return [found.span() for found in re.finditer(WORD, text) if stem(found.group().lower()) in wanted]


def _word_start(text: str, at: int) -> int:
    """The start of the word that `at` is in; `at` itself if that word is very long."""
    start = max(text.rfind(" ", 0, at), text.rfind("\n", 0, at)) + 1
    return start if 0 < at < len(text) and at - start < 40 else at
