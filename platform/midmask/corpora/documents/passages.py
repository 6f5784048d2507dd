"""Documents cut into passages (along headings, paragraphs, sentences, words), and ids that say where each stands.

A passage never crosses a heading, and takes whole sentences as long as they fit. A paragraph that does not fit into a
passage that is half full begins the next one. What is left at the end of a section is evened out with the passage
before it, so that a section of 125 words does not end in a passage of 5. Sentences are those of sentencex; put end to
end they are the text.

    guide/install.md#120-860    characters 120 … 859 of the document's extracted text
    faq.csv#12                  row 12 of a table, the first one after the header being 1
    faq.csv#12:0-640            characters 0 … 639 of that row's text

Ids may hold no white space, and `#` ends the file's name, so these characters (and `%`) are percent-encoded in names.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import quote

from midmask.core.config import library_versions
from midmask.corpora.documents.blocks import TextBlock

LANGUAGE = "en"


def sentences(text: str) -> list[str]:
    """The sentences in order, each with the white space that follows it."""
    from sentencex import segment

    return list(segment(LANGUAGE, text))


def splitter() -> dict[str, str]:
    """Identity of the sentence splitter, as a part of an artifact's identity."""
    return library_versions(("sentencex",))


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
    """The smallest part of a passage: a sentence, or a part of a long one; characters [start, end) of the document."""

    start: int
    end: int
    words: int


def cut_passages(blocks: Iterator[TextBlock], title: str, words: int, *, untitled: str = "") -> Iterator[CutPassage]:
    """The passages of a document in order. Each character that is no white space is in one passage
    exactly, but for headings, which are in titles; a heading that nothing follows is a passage itself.

    Args:
        title: of the document. untitled: stands for it above the first heading where it is empty. words: largest size
            of a passage.
    """
    headings: list[tuple[int, str]] = []
    path = title or untitled
    section: list[tuple[int, TextBlock]] = []
    bare: CutPassage | None = None
    end = 0
    for number, block in enumerate(blocks):
        start = end + (len(block.before) if number else 0)
        end = start + len(block.text)
        if not block.level:
            bare = None
            section.append((start, block))
            continue
        yield from _cut_section(section, path, words)
        if bare is not None and block.level <= headings[-1][0]:
            yield bare
        while headings and headings[-1][0] >= block.level:
            headings.pop()
        bare = CutPassage(start, end, _path(title, headings), block.text)
        headings.append((block.level, block.text))
        section, path = [], _path(title, headings)
    yield from _cut_section(section, path, words)
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


def _cut_section(section: list[tuple[int, TextBlock]], title: str, most: int) -> Iterator[CutPassage]:
    """The passages of the paragraphs below one heading, given with their places in the document."""
    parts: list[list[Unit]] = []
    size = most  # of the last part
    for start, block in section:
        units = divide(block.text, start, most)
        if size + _size(units) > most and 2 * size >= most:
            parts.append([])
            size = 0
        for unit in units:
            if size and size + unit.words > most:
                parts.append([])
                size = 0
            parts[-1].append(unit)
            size += unit.words
    if len(parts) > 1:
        parts[-2:] = even_out(parts[-2], parts[-1], most)
    begin = section[0][0] if section else 0
    text = "".join(f"{block.before if number else ''}{block.text}" for number, (_, block) in enumerate(section))
    for units in parts:
        start, end = units[0].start, units[-1].end
        yield CutPassage(start, end, title, text[start - begin : end - begin])


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


_UNSAFE = re.compile(r"[\s#%\x00-\x1f\x7f-\x9f]")


def passage_id(file: str, span: CutPassage | None, row: int | None = None) -> str:
    """The id of a passage.

    Args:
        file: path below the corpus's folder. span: None for a whole row. row: of a table, from 1; None for other
            documents.
    """
    characters = "" if span is None else f"{span.start}-{span.end}"
    number = "" if row is None else f"{row}{':' if span else ''}"
    return f"{_UNSAFE.sub(lambda match: quote(match[0]), file)}#{number}{characters}"


def document_of(doc_id: str) -> str:
    """The document's part of an id: all before `#`, percent-encoded as it is there; the whole id where there is none.
    Rows of one table share it.
    """
    return doc_id.partition("#")[0]
