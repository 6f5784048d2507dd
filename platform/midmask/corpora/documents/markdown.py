"""Markdown (.md): headings and paragraphs as a reader sees them, without the markup.

It is parsed by markdown-it: headings, paragraphs, items of lists, rows of tables and code, with a link's words in place
of the link, without HTML tags. A title in front matter (`title: …` between lines of `---`) is the document's; the rest
of it is left out. The file is parsed in parts of some 256 KB, cut at blank lines outside code, so that memory does not
grow with it.
"""

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from midmask.corpora.documents.blocks import (
    LINE,
    PARAGRAPH,
    BadRow,
    DocumentFile,
    ParsedDocument,
    TextBlock,
    heading,
    paragraph,
    read_lines,
    text_blocks,
)

if TYPE_CHECKING:
    from markdown_it.token import Token


PART = 256 << 10
LARGEST_PART = 4 * PART
"""Characters of a part; one without a blank line ends at any line."""

NESTING = 20
"""Depth from which markdown-it drops what is nested; such a part is read as plain text."""

FRONT_LINES = 200

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_INLINE = (
    (re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"()]*\")?\)"), r"\1"),  # [words](address "title"), images
    (re.compile(r"!?\[([^\[\]]*)\]\[[^\[\]]*\]"), r"\1"),  # [words][name]
    (re.compile(r"<((?:https?|mailto):[^<>\s]*)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]*>|<!--[^<>]*-->"), ""),
    (re.compile(r"(?<![\w\\])[*_]{1,3}(?=\S)|(?<=[^\s\\])[*_]{1,3}(?!\w)|\*\*"), ""),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
)
_BACKTICKS = re.compile(r"(`+)")
_DEFINITION = re.compile(r" {0,3}\[[^\[\]]+\]:\s*\S+.*")


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document."""
    encoding, lines = read_lines(source)
    title, rest = take_front_matter(lines)
    yield ParsedDocument(title, markdown_blocks(rest), encoding)


def take_front_matter(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """(title, the other lines); lines that begin like front matter but do not end so stay."""
    first = next(lines, "")
    if first.rstrip() != "---":
        return "", chain([first], lines)
    head, title = [first], ""
    for line in lines:
        head.append(line)
        if line.rstrip() in ("---", "..."):
            return title, lines
        if not title and line.startswith("title:"):
            title = line.removeprefix("title:").strip().strip("\"'").strip()
        if len(head) > FRONT_LINES:
            break
    return "", chain(head, lines)


def markdown_blocks(lines: Iterable[str]) -> Iterator[TextBlock]:
    """The blocks of Markdown, from lines with their line ends."""
    for part in _parts(lines):
        yield from _parse_part(part)


def _parts(lines: Iterable[str]) -> Iterator[str]:
    waiting: list[str] = []
    size, fence = 0, ""
    for line in lines:
        waiting.append(line)
        size += len(line)
        if match := _FENCE.match(line):
            if not fence:
                fence = match[1]
            elif match[1].startswith(fence):
                fence = ""
        if (size >= PART and not fence and not line.strip()) or size >= LARGEST_PART:
            yield "".join(waiting)
            waiting, size, fence = [], 0, ""
    yield "".join(waiting)


def _parse_part(text: str) -> Iterator[TextBlock]:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table").disable(["reference"])
    parser.core.ruler.disable(["inline", "text_join"])
    tokens = parser.parse(text)
    if any(token.level >= NESTING - 1 for token in tokens):
        yield from text_blocks(text.splitlines(keepends=True))
        return
    level, before = 0, PARAGRAPH
    cells: list[str] | None = None
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            level, before = 0, PARAGRAPH
        if token.type == "heading_open" and token.level == 0:
            level = int(token.tag[1])
        elif token.type == "tr_open":
            cells = []
        elif token.type == "inline" and cells is not None:
            cells.append(plain_inline(token.content))
        elif token.type == "inline" and level:
            if title := plain_inline(token.content).strip():
                yield heading(title, level)
        elif found := _text_of(token, cells):
            yield from paragraph(found, before)
            cells, before = None, LINE


def _text_of(token: "Token", cells: list[str] | None) -> str:
    """The paragraph that ends with a token; "" if none does."""
    if token.type == "tr_close":
        return " | ".join(cells or []).strip()
    if token.type in ("inline", "html_block"):
        return plain_inline(token.content).strip()
    return token.content.strip("\n") if token.type in ("fence", "code_block") else ""


def plain_inline(text: str) -> str:
    """The words of a paragraph, without marks; lines that define links are left out, code spans stay as they are."""
    text = "\n".join(line for line in text.split("\n") if not _DEFINITION.fullmatch(line))
    return "".join(part if is_code else _without_marks(part) for part, is_code in _code_spans(text))


def _without_marks(text: str) -> str:
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return html.unescape(text)


def _code_spans(text: str) -> Iterator[tuple[str, bool]]:
    """(part, whether it is code) in order: code stands between two equally long runs of backticks."""
    parts = _BACKTICKS.split(text)
    places: dict[str, list[int]] = {}
    for place in range(len(parts) - 2, 0, -2):
        places.setdefault(parts[place], []).append(place)
    yield parts[0], False
    place = 1
    while place < len(parts):
        ends = places[parts[place]]
        while ends and ends[-1] <= place:
            ends.pop()
        if ends:
            yield "".join(parts[place + 1 : ends[-1]]), True
            place = ends[-1]
        yield parts[place + 1], False
        place += 2
