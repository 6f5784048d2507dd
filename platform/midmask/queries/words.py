"""Words of a collection and how telling they are: document frequencies of the stems that BM25 searches with."""

import math
import re
from collections import Counter
from collections.abc import Iterable

from midmask.retrieve.stems import WORD, StemmedWords

STOP_WORDS = frozenset(
    "about above after again against all also am an and any are as at be because been before being below between both "
    "but by can cannot could did do does doing down during each either else etc ever every few for from further had "
    "has have having he her here hers him himself his how however if in into is it its itself just may me might more "
    "most must my myself near neither no nor not now of off often on once one only onto or other our ours out over own "
    "per quite rather same shall she should since so some such than that the their theirs them themselves then there "
    "these they this those through thus to too under until up upon us very via was we were what when where whether "
    "which while who whom whose why will with within without would yet you your yours".split()
)
"""English words that tell nothing of a passage's topic."""

find_words = re.compile(WORD).finditer


def normalised(text: str) -> str:
    """The text's words in lower case, one space between them: what is compared to find one query twice."""
    return " ".join(re.findall(r"\w+", text.lower()))


class TermWeights:
    """How many passages have each stem.

    Args:
        texts: one text per passage, title and text together.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._words = StemmedWords()
        self._frequency: Counter[int] = Counter()
        self.passages = 0
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Counts one more passage."""
        self._frequency.update(set(self._words.ids(text)))
        self.passages += 1

    def stems(self, text: str) -> list[int]:
        """A number for the stem of each word of the text, in order; those of other texts agree."""
        return self._words.ids(text)

    def frequency(self, stem: int) -> int:
        """The number of passages that have it."""
        return self._frequency[stem]

    def idf(self, stem: int) -> float:
        """Lucene's: ln(1 + (N - n + 0.5) / (n + 0.5)), above 0."""
        found = self._frequency[stem]
        return math.log(1 + (self.passages - found + 0.5) / (found + 0.5))

    def overlap(self, query: str, passage: str) -> float:
        """The share of the query's stems, weighted by idf, that the passage has; 0 for a query without words."""
        asked = sorted(set(self.stems(query)))
        there = set(self.stems(passage))
        whole = math.fsum(self.idf(stem) for stem in asked)
        return math.fsum(self.idf(stem) for stem in asked if stem in there) / whole if whole else 0.0
