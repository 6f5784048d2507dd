"""Markdown (.md): headings and paragraphs as a reader sees them, without the markup.

It is parsed by markdown-it: headings, paragraphs, items of lists, rows of tables and code, with a link's words in place
of the link, without HTML tags. A title in front matter (`title: …` between lines of `---`) is the document's; the rest
of it is left out.
"""

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from midmask.corpora.documents.blocks import (
    LARGEST,
    LINE,
    PARAGRAPH,
    BadRow,
    DocumentFile,
    ParsedDocument,
    TextBlock,
    heading,
    paragraph,
    read_text,
    text_blocks,
)

if TYPE_CHECKING:
    from markdown_it.token import Token


NESTING = 20
"""Depth from which markdown-it drops what is nested; such a file is read as plain text."""

FRONT_LINES = 200

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--[^<>]*-->")


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document."""
    title, text = take_front_matter(read_text(source, LARGEST))
    yield ParsedDocument(title, markdown_blocks(text))


def take_front_matter(text: str) -> tuple[str, str]:
    """(title, the rest of the text); lines that begin like front matter but do not end so stay."""
    match = _FRONT_MATTER.match(text)
    if match is None or match[1].count("\n") > FRONT_LINES:
        return "", text
    titles = [line.removeprefix("title:") for line in match[1].split("\n") if line.startswith("title:")]
    return (titles or [""])[0].strip().strip("\"'").strip(), text[match.end() :]


def markdown_blocks(text: str) -> Iterator[TextBlock]:
    """The blocks of Markdown."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    if any(token.level >= NESTING - 1 for token in tokens):
        yield from text_blocks(text)
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
            cells.append(_words(token))
        elif token.type == "inline" and level:
            if title := _words(token):
                yield heading(title, level)
        elif found := _text_of(token, cells):
            yield from paragraph(found, before)
            cells, before = None, LINE


def _text_of(token: "Token", cells: list[str] | None) -> str:
    """The paragraph that ends with a token; "" if none does."""
    if token.type == "tr_close":
        return " | ".join(cells or []).strip()
    if token.type == "inline":
        return _words(token)
    if token.type == "html_block":
        return html.unescape(_TAG.sub("", token.content)).strip()
    return token.content.strip("\n") if token.type in ("fence", "code_block") else ""


def _words(token: "Token") -> str:
    """The words of a paragraph, a heading or a cell, without marks."""
    parts = [part for part in token.children or [] if part.type != "html_inline"]
    return "".join("\n" if part.type.endswith("break") else part.content for part in parts).strip()
