"""Spans as queries: a few words in a row, from anywhere in a passage, hidden from it. The crudest stand-in."""

import re
from collections.abc import Iterator, Sequence

from midmask.queries.draws import draw
from midmask.queries.made import MadeQuery, Passage

FEWEST_WORDS, MOST_WORDS = 4, 10
SHARE = 3
"""A passage has at least so many times the words of a span."""


class SpanQueries:
    """Spans of 4 to 10 words, their length and place drawn by a hash of the passage's id.

    Args:
        each: number of spans of a passage; those that meet an earlier one of the passage are left out.
    """

    def __init__(self, seed: int, each: int) -> None:
        self._seed, self._each = seed, each

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        for passage in passages:
            words = [match.span() for match in re.finditer(r"\S+", passage.text)]
            taken: list[range] = []
            for number in range(self._each):
                span = self._draw_span(passage.doc_id, number, len(words))
                if span and not any(span.start < one.stop and one.start < span.stop for one in taken):
                    taken.append(span)
                    start, end = words[span.start][0], words[span.stop - 1][1]
                    query = " ".join(passage.text[start:end].split())
                    yield MadeQuery(passage.doc_id, query, "spans", hidden=(start, end))

    def _draw_span(self, doc_id: str, number: int, words: int) -> range | None:
        """Numbers of the words of a span; none where the passage is too short."""
        length = FEWEST_WORDS + draw(self._seed, "span length", doc_id, number) % (MOST_WORDS - FEWEST_WORDS + 1)
        if words < SHARE * length:
            return None
        start = draw(self._seed, "span start", doc_id, number) % (words - length + 1)
        return range(start, start + length)
