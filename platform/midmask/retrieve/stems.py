"""The words that BM25 searches with: lower-cased runs of two or more word characters, stemmed by Snowball English; no
stop words are removed.
"""

WORD = r"(?u)\b\w\w+\b"


class StemmedWords:
    """Text to numbers of stemmed words. `known`: stem -> number."""

    def __init__(self) -> None:
        import re

        import Stemmer

        self.known: dict[str, int] = {}
        self._split = re.compile(WORD).findall
        self._stem = Stemmer.Stemmer("english").stemWords

    def stems(self, text: str) -> list[str]:
        """The stem of each word, in order."""
        found: list[str] = self._stem(self._split(text.lower()))
        return found

    def ids(self, text: str) -> list[int]:
        """One number per word; unknown words are learnt."""
        return [self.known.setdefault(stem, len(self.known)) for stem in self.stems(text)]
