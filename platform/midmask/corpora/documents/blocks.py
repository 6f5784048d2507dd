"""Blocks: the headings and paragraphs of a document in order. Put together they are its extracted text, to which the
offsets of passages refer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LONGEST = 20_000
"""Characters of a block; a longer paragraph becomes several, so that no reader holds more of a file than this."""

LONGEST_HEADING = 200
"""Characters of a heading; what is longer is a paragraph."""

PARAGRAPH, LINE = "\n\n", "\n"


@dataclass(frozen=True)
class TextBlock:
    """A heading (level 1 is the highest) or a paragraph (level 0). before: what separates it from the last one."""

    text: str
    level: int = 0
    before: str = PARAGRAPH


def heading(text: str, level: int) -> TextBlock:
    """A heading in one line; a paragraph if it is too long for one."""
    line = " ".join(text.split())
    return TextBlock(line, level if len(line) <= LONGEST_HEADING else 0)


def paragraph(text: str, before: str = PARAGRAPH) -> Iterator[TextBlock]:
    """The blocks of a text without headings: none if it is blank, several if it is long."""
    text = text.strip()
    start = 0
    while len(text) - start > LONGEST:
        stop, gap = _place_to_split(text, start)
        head = text[start:stop].rstrip()
        yield TextBlock(head, 0, before)
        before, start = gap, stop
        while text[start].isspace():
            start += 1
    if text:
        yield TextBlock(text[start:], 0, before)


def _place_to_split(text: str, start: int) -> tuple[int, str]:
    """(end, separator) of a block that begins at `start`: at white space if there is any in the second half of its
    LONGEST characters, else anywhere, without a separator.
    """
    end = start + LONGEST
    place = max(text.rfind(space, start + LONGEST // 2, end) for space in " \n\t")
    return (end, "") if place < 0 else (place, "\n" if text[place] == "\n" else " ")


def text_blocks(fragments: Iterable[str]) -> Iterator[TextBlock]:
    """The paragraphs of plain text, which blank lines separate.

    Args:
        fragments: lines with their line ends; a long line in several.
    """
    waiting: list[str] = []
    size, before, line_start = 0, PARAGRAPH, True
    for fragment in fragments:
        if line_start and not fragment.strip() and fragment.endswith("\n"):
            yield from paragraph("".join(waiting), before)
            waiting, size, before = [], 0, PARAGRAPH
            continue
        waiting.append(fragment)
        size += len(fragment)
        line_start = fragment.endswith("\n")
        if size > 2 * LONGEST:
            blocks = list(paragraph("".join(waiting), before))
            yield from blocks[:-1]
            waiting = [blocks[-1].text, _trailing(fragment)] if blocks else []
            before = blocks[-1].before if blocks else before
            size = sum(map(len, waiting))
    yield from paragraph("".join(waiting), before)


def _trailing(text: str) -> str:
    """One character of the white space at the end of a text, if there is any."""
    return text[-1] if text[-1:].isspace() else ""
