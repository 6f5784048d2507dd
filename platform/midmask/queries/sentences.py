"""Sentences as queries (the inverse cloze task, Lee et al. 2019): one sentence asks for the rest of its passage."""

from collections.abc import Iterator, Sequence

from midmask.corpora.sentences import sentences
from midmask.queries.draws import draw_order
from midmask.queries.made import MadeQuery, Passage

FEWEST_WORDS, MOST_WORDS = 6, 30
"""Words of a sentence that is a query, by white space."""


class SentenceQueries:
    """Some sentences of each passage, drawn by a hash of its id, and hidden from it.

    A sentence has 6 to 30 words, and at most half of the passage's.

    Args:
        each: largest number of queries of a passage.
    """

    def __init__(self, seed: int, each: int) -> None:
        self._seed, self._each = seed, each

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        for passage in passages:
            fitting = list(_fitting(passage.text))
            for number in draw_order(self._seed, len(fitting), "sentences", passage.doc_id)[: self._each]:
                start, end = fitting[number]
                query = " ".join(passage.text[start:end].split())
                yield MadeQuery(passage.doc_id, query, "sentences", hidden=(start, end))


def _fitting(text: str) -> Iterator[tuple[int, int]]:
    """Characters [start, end) of the sentences that may be queries, without the white space around them."""
    whole = len(text.split())
    at = 0
    for sentence in sentences(text):
        start, end = at + len(sentence) - len(sentence.lstrip()), at + len(sentence.rstrip())
        at += len(sentence)
        if FEWEST_WORDS <= (words := len(sentence.split())) <= MOST_WORDS and 2 * words <= whole:
            yield start, end
