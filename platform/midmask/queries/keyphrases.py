"""Keyphrases as queries: what a passage is about, in 2 to 5 of its words, as people type into a search box.

Phrases are runs of words without a stop word or punctuation between them (RAKE, Rose et al. 2010). A phrase's score is
the sum of its stems' BM25 weights: idf * tf / (tf + 0.9). They are drawn with probabilities as their scores, not taken
from the top: people ask for any part of a text, and its most telling words would be found by any word search. Words
that only one passage of the collection has are left out for the same reason.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from midmask.queries.draws import draw
from midmask.queries.made import MadeQuery, Passage
from midmask.queries.words import STOP_WORDS, TermWeights, find_words

FEWEST_WORDS, MOST_WORDS = 2, 5
LONGEST_PHRASE = 3
SATURATION = 0.9
FEWEST_PASSAGES = 2
"""Passages that have a word of a query, at least."""

Phrase = tuple[int, ...]
"""Positions of a phrase's words in the passage."""


class KeyphraseQueries:
    """Some phrases of each passage, drawn by a hash, in the order in which they appear. Nothing is hidden.

    Args:
        each: largest number of queries of a passage; they share no stem.
    """

    def __init__(self, weights: TermWeights, seed: int, each: int) -> None:
        self._weights, self._seed, self._each = weights, seed, each

    def queries(self, passages: Sequence[Passage]) -> Iterator[MadeQuery]:
        for passage in passages:
            words = [match.group() for match in find_words(passage.text.lower())]
            stems = self._weights.stems(passage.text)
            ranked = self._draw(passage.doc_id, passage.text.lower(), stems)
            used: set[int] = set()
            for number in range(self._each):
                wanted = FEWEST_WORDS + draw(self._seed, "terms", passage.doc_id, number) % (
                    MOST_WORDS - FEWEST_WORDS + 1
                )
                chosen = _take(ranked, stems, used, wanted)
                if len(chosen) < FEWEST_WORDS:
                    break
                yield MadeQuery(passage.doc_id, " ".join(words[at] for at in chosen), "keyphrases")

    def _draw(self, doc_id: str, text: str, stems: list[int]) -> list[Phrase]:
        """Phrases in a random order: each next one is drawn with a probability as its score."""
        counts = Counter(stems)

        def score(phrase: Phrase) -> float:
            own = {stems[at] for at in phrase}
            return sum(self._weights.idf(one) * counts[one] / (counts[one] + SATURATION) for one in sorted(own))

        phrases = {part for run in self._runs(text, stems) for part in _parts(run)}
        return sorted(phrases, key=lambda phrase: (self._time(doc_id, phrase, score(phrase)), phrase))

    def _time(self, doc_id: str, phrase: Phrase, score: float) -> float:
        """An exponential waiting time; higher scores come sooner."""
        return -math.log((draw(self._seed, "phrase", doc_id, *phrase) + 0.5) / 2.0**64) / score

    def _runs(self, text: str, stems: list[int]) -> Iterator[Phrase]:
        """Longest runs of words that may be in a query, with only a space or a hyphen between two."""
        run: list[int] = []
        end = 0
        for at, match in enumerate(find_words(text)):
            word = match.group()
            fits = (
                word not in STOP_WORDS and not word.isdigit() and self._weights.frequency(stems[at]) >= FEWEST_PASSAGES
            )
            if run and (not fits or text[end : match.start()] not in (" ", "-")):
                yield tuple(run)
                run = []
            run += [at] if fits else []
            end = match.end()
        if run:
            yield tuple(run)


def _parts(run: Phrase) -> list[Phrase]:
    """The run, or its parts of 3 words."""
    return [run[at : at + LONGEST_PHRASE] for at in range(max(1, len(run) - LONGEST_PHRASE + 1))]


def _take(ranked: list[Phrase], stems: list[int], used: set[int], wanted: int) -> list[int]:
    """Positions of about `wanted` words in order: of the first phrases all of whose stems are new; `used` grows."""
    chosen: list[int] = []
    for phrase in ranked:
        own = [stems[at] for at in phrase]
        if len(chosen) + len(phrase) <= MOST_WORDS and len(set(own)) == len(own) and not used & set(own):
            chosen += phrase
            used.update(own)
        if len(chosen) >= wanted:
            break
    return sorted(chosen)
