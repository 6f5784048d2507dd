"""HTML (.html, .htm) and Markdown (.md): the text of the page's main part, with its headings.

Left out are scripts, styles, forms' controls, and the page's frame (nav, footer, aside, and elements whose role is
navigation, contentinfo or complementary). A page with one element `main` that has text is read from that alone.

Markdown is rendered as XHTML by markdown-it and read alike, but that white space stays, cells are divided, and
all paragraphs of a list or a quotation are lines of one. A title in front matter (`title: …` between lines of `---`) is
the document's; the rest of it is left out.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import XMLParser

from midmask.corpora.documents.blocks import (
    DAMAGED,
    LINE,
    PARAGRAPH,
    DocumentFile,
    ParsedDocument,
    TextBlock,
    Unreadable,
    heading,
    read_text,
    text_blocks,
)

LEFT_OUT = frozenset(
    "script style template noscript svg canvas iframe object select button textarea nav footer aside".split()
)
FRAME = frozenset({"navigation", "contentinfo", "complementary"})
IN_LINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr img".split()
)
SPACES = {"td": " ", "th": " ", "hr": " ", "br": "\n"}
"""What stands in the text in place of the beginning of an element."""
OWN_LINE = frozenset({"li", "tr", "dt", "dd", "option"})
"""Elements that stand in lines of their own, without a blank line between."""
CELL = " | "
"""What divides the cells of a table of Markdown."""
HEADINGS = {f"h{level}": level for level in range(1, 7)}

_SPACE = re.compile(r"\s+")


class _Page:
    """A page's title, and the blocks of its main part: a target of the parsers of lxml and of the standard library."""

    def __init__(self, *, markdown: bool = False) -> None:
        self._markdown = markdown
        self._title = ""
        self._found: list[tuple[bool, TextBlock]] = []  # whether it stands in the element `main`
        self._mains = 0
        self._open: list[str] = []  # kinds of the elements that are open
        self._inside: Counter[str] = Counter()  # how many of each kind
        self._run = ""  # the text since the last tag that counts
        self._parts: list[str] = []  # of the block that is read
        self._before = PARAGRAPH

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        role = attributes.get("role")
        kind = "left out" if tag in LEFT_OUT or role in FRAME else "main" if role == "main" else tag
        if kind != "left out" and not self._inside["left out"]:
            self._end_run()
            if self._markdown and tag in ("td", "th"):
                self._parts.append(CELL)
            elif tag in SPACES:
                self._parts.append(SPACES[tag])
            elif tag not in IN_LINE:
                self._end_block(tag)
            if self._markdown and tag == "img":
                self._parts.append(attributes["alt"])
            self._mains += kind == "main"
        self._open.append(kind)
        self._inside[kind] += 1

    def end(self, tag: str) -> None:
        if not self._inside["left out"]:
            self._end_run()
            if tag not in IN_LINE and tag not in SPACES:
                self._end_block(tag)
        self._inside[self._open.pop()] -= 1

    def data(self, text: str) -> None:
        if self._inside["title"]:
            self._title += text if self._inside["head"] else ""
        elif not self._inside["left out"]:
            self._run += text

    def _end_run(self) -> None:
        self._parts.append(self._run if self._markdown or self._inside["pre"] else _SPACE.sub(" ", self._run))
        self._run = ""

    def _end_block(self, tag: str) -> None:
        """Takes the text since the last border of a block; the next block begins or ends an element of this name."""
        text = "".join(self._parts).removeprefix(CELL).strip()
        self._parts = []
        at_top = len(self._open) < 3  # in Markdown: of the body itself
        if text:
            level = next((HEADINGS[name] for name in HEADINGS if self._inside[name]), 0)
            level = 0 if self._markdown and not at_top else level
            block = heading(text, level) if level else TextBlock(text, 0, self._before)
            self._found.append((self._inside["main"] > 0, block))
        if not self._markdown:
            self._before = LINE if tag in OWN_LINE else PARAGRAPH
        elif text or len(self._open) < 2:
            self._before = PARAGRAPH if at_top else LINE

    def close(self) -> ParsedDocument:
        self._end_run()
        self._end_block("")
        main = [block for in_main, block in self._found if in_main]
        blocks = main if main and self._mains == 1 else [block for _, block in self._found]
        return ParsedDocument(" ".join(self._title.split()), iter(blocks))


def read_html(source: DocumentFile) -> Iterator[ParsedDocument]:
    """One document."""
    from lxml import etree  # the standard library's parser of HTML takes the square of the length for some pages

    parser = etree.HTMLParser(target=_Page(), encoding="utf-8", huge_tree=True)
    parser.feed(read_text(source).encode("utf-8", "replace"))
    page: ParsedDocument = parser.close()
    if any("depth" in entry.message.lower() for entry in parser.error_log):
        raise Unreadable(DAMAGED, "elements nested too deeply")
    yield page


NESTING = 20
"""Depth from which markdown-it drops what is nested; such a file is read as plain text."""
FRONT_LINES = 200
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$\n?", re.DOTALL | re.MULTILINE)


def read_markdown(source: DocumentFile) -> Iterator[ParsedDocument]:
    """One document."""
    title, text = take_front_matter(read_text(source))
    yield ParsedDocument(title, markdown_blocks(text))


def take_front_matter(text: str) -> tuple[str, str]:
    """(title, the rest of the text); lines that begin like front matter but do not end so stay."""
    match = _FRONT_MATTER.match(text)
    if match is None or match[1].count("\n") > FRONT_LINES:
        return "", text
    titles = [line.removeprefix("title:") for line in match[1].split("\n") if line.startswith("title:")]
    return (titles or [""])[0].strip().strip("\"'").strip(), text[match.end() :]


_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--[^<>]*-->")
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def markdown_blocks(text: str) -> Iterator[TextBlock]:
    """The blocks of Markdown, without tags of HTML; the line ends of a paragraph stay."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    for kind, rule in RULES.items():
        parser.add_render_rule(kind, rule)
    tokens = parser.parse(_NO_XML.sub(" ", text))
    if any(token.level >= NESTING - 1 for token in tokens):
        return text_blocks(text)
    page: Any = XMLParser(target=_Page(markdown=True))
    rendered = parser.renderer.render(tokens, parser.options, {})
    page.feed("<body>" + re.sub(">\n+<", "><", rendered) + "</body>")
    document: ParsedDocument = page.close()
    return document.blocks


def _without_tags(renderer: Any, tokens: Any, place: int, options: Any, env: Any) -> str:
    return f"<pre>{html.escape(html.unescape(_TAG.sub('', tokens[place].content)))}</pre>"


RULES = {
    "html_block": _without_tags,
    "html_inline": lambda *_: "",
    "softbreak": lambda *_: "<br />",
    "hardbreak": lambda *_: "<br />",
}
"""How tokens are rendered that are rendered otherwise than by markdown-it itself."""
