"""A query's words marked in passages, on the page of searches."""

import re
from typing import NamedTuple

from midmask.queries.plain_sources import FUNCTION_WORDS
from midmask.retrieve.bm25.words import WORD


class TextPart(NamedTuple):
    """A part of a text, marked if it is a word of the query."""

    text: str
    marked: bool


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


def _matches(text: str, query: str) -> list[tuple[int, int]]:
    import Stemmer

    stem = Stemmer.Stemmer("english").stemWord
    asked = re.findall(WORD, query.lower())
    wanted = {stem(word) for word in asked if word not in FUNCTION_WORDS} or {stem(word) for word in asked}
    return [found.span() for found in re.finditer(WORD, text) if stem(found.group().lower()) in wanted]
