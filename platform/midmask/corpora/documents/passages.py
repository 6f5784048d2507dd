"""Documents cut into passages: along headings, then paragraphs, then sentences, then words.

A passage never crosses a heading, and takes whole sentences as long as they fit. A paragraph that does not fit into a
passage that is half full begins the next one. What is left at the end of a section is evened out with the passage
before it, so that a section of 125 words does not end in a passage of 5.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from midmask.corpora.documents.blocks import TextBlock
from midmask.corpora.sentences import sentences

WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    r"|[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]{1,100}"
)
"""A word: characters between white space, 100 at most; in scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer,
Burmese) each character counts."""

BETWEEN = " \u203a "
"""Separates the headings of a title."""


@dataclass(frozen=True)
class CutPassage:
    """Characters [start, end) of a document's extracted text, under the headings that the title names."""

    start: int
    end: int
    title: str
    text: str


@dataclass(frozen=True)
class Unit:
    """What is not divided: a sentence, or a part of a long one. Characters [start, end) of the document."""

    start: int
    end: int
    words: int


def cut_passages(
    blocks: Iterator[TextBlock], title: str, words: int, overlap: int, *, untitled: str = ""
) -> Iterator[CutPassage]:
    """The passages of a document in order. Without overlap, each character that is no white space is in one passage
    exactly, but for headings, which are in titles; a heading that nothing follows is a passage itself.

    Args:
        title: of the document. untitled: stands for it above the first heading where it is empty. words: largest size
            of a passage. overlap: words at the end of a passage that the next one of the section begins with; they
            count for its size.
    """
    headings: list[tuple[int, str]] = []
    section = _Section(title or untitled, words, overlap)
    bare: CutPassage | None = None
    end = 0
    for number, block in enumerate(blocks):
        gap = block.before if number else ""
        start = end + len(gap)
        end = start + len(block.text)
        if not block.level:
            bare = None
            yield from section.add(block.text, gap, start)
            continue
        yield from section.close()
        if bare is not None and block.level <= headings[-1][0]:
            yield bare
        while headings and headings[-1][0] >= block.level:
            headings.pop()
        bare = CutPassage(start, end, _path(title, headings), block.text)
        headings.append((block.level, block.text))
        section = _Section(_path(title, headings), words, overlap)
    yield from section.close()
    if bare is not None:
        yield bare


def _path(title: str, headings: list[tuple[int, str]]) -> str:
    """The document's title and the headings; the title is left out where the first heading repeats it or is in it."""
    names = [text for _, text in headings]
    if title and not (names and _is_same(title, names[0])):
        names.insert(0, title)
    return BETWEEN.join(names)


def _is_same(title: str, first: str) -> bool:
    title, first = title.casefold(), first.casefold()
    return first in title or title in first


class _Section:
    """The text below one heading, cut as it arrives: at most two passages and a paragraph are held."""

    def __init__(self, title: str, words: int, overlap: int) -> None:
        self._title, self._room, self._overlap = title, words - overlap, overlap
        self._text, self._begin = "", 0
        self._waiting: list[list[Unit]] = []
        self._size = 0
        self._last: tuple[int, int] | None = None

    def add(self, text: str, gap: str, start: int) -> Iterator[CutPassage]:
        """A paragraph that begins at `start`, after `gap`."""
        if not self._text:
            self._begin, gap = start, ""
        self._text = f"{self._text}{gap}{text}"
        units = divide(text, start, self._room)
        if not self._waiting or (self._size + _size(units) > self._room and 2 * self._size >= self._room):
            self._begin_passage()
        for unit in units:
            if self._size and self._size + unit.words > self._room:
                self._begin_passage()
            self._waiting[-1].append(unit)
            self._size += unit.words
        while len(self._waiting) > 2:
            yield self._take(self._waiting.pop(0))

    def _begin_passage(self) -> None:
        self._waiting.append([])
        self._size = 0

    def close(self) -> Iterator[CutPassage]:
        """The rest, once the section has ended."""
        if len(self._waiting) == 2:
            self._waiting = even_out(self._waiting[0], self._waiting[1], self._room)
        for units in self._waiting:
            yield self._take(units)
        self._waiting = []

    def _take(self, units: list[Unit]) -> CutPassage:
        start, end = units[0].start, units[-1].end
        begin = start
        if self._overlap and self._last is not None:
            begin = self._overlap_start(*self._last)
        text = self._text[begin - self._begin : end - self._begin]
        self._text, self._begin = self._text[start - self._begin :], start
        self._last = (start, end)
        return CutPassage(begin, end, self._title, text)

    def _overlap_start(self, start: int, end: int) -> int:
        """Where the last words of the passage before begin."""
        words = list(WORD.finditer(self._text, start - self._begin, end - self._begin))
        return self._begin + words[-min(self._overlap, len(words))].start()


def divide(text: str, start: int, most: int) -> list[Unit]:
    """The sentences of a text that begins at `start`; a longer one in equal parts of at most `most` words."""
    words = [match.span() for match in WORD.finditer(text)]
    units: list[Unit] = []
    first, end = 0, 0
    for sentence in sentences(text):
        end += len(sentence)
        after = first
        while after < len(words) and words[after][0] < end:
            after += 1
        count = after - first
        if count:
            parts = -(-count // most)
            cuts = [first + count * part // parts for part in range(parts + 1)]
            units += [Unit(start + words[a][0], start + words[b - 1][1], b - a) for a, b in pairwise(cuts)]
        first = after
    return units


def even_out(previous: list[Unit], last: list[Unit], most: int) -> list[list[Unit]]:
    """The units of two passages, divided again near their middle if the last one has less than a quarter of `most`."""
    if 4 * _size(last) >= most:
        return [previous, last]
    units, total = [*previous, *last], _size(previous) + _size(last)
    if total <= most:
        return [units]
    best, size = len(previous), 0
    distance = abs(2 * _size(previous) - total)
    for place, unit in enumerate(units[:-1], start=1):
        size += unit.words
        if max(size, total - size) <= most and abs(2 * size - total) < distance:
            best, distance = place, abs(2 * size - total)
    return [units[:best], units[best:]]


def _size(units: list[Unit]) -> int:
    return sum(unit.words for unit in units)
