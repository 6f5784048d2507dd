"""HTML (.html, .htm): the text of the page's main part, with its headings.

Left out are scripts, styles, forms' controls, and the page's frame (nav, footer, aside, and elements whose role is
navigation, contentinfo or complementary). A page with one element `main` that has text is read from that alone.
"""

import codecs
import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from midmask.corpora.documents.blocks import (
    DAMAGED,
    LARGEST,
    LINE,
    PARAGRAPH,
    TOO_LARGE,
    BadRow,
    DocumentFile,
    ParsedDocument,
    TextBlock,
    Unreadable,
    guess_encoding,
    heading,
    paragraph,
)

if TYPE_CHECKING:
    from lxml.etree import _Element

HEADINGS = {f"h{level}": level for level in range(1, 7)}
LEFT_OUT = (
    *("script", "style", "template", "noscript", "svg", "canvas", "iframe", "object", "select", "button", "textarea"),
    *("nav", "footer", "aside"),
)
ROLES = "//*[@role='navigation' or @role='contentinfo' or @role='complementary']"
IN_LINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr img".split()
)
SPACES = {"td": " ", "th": " ", "hr": " ", "br": "\n"}
"""What stands in the text in place of the beginning of an element."""

CLOSE = frozenset({"li", "tr", "dt", "dd", "option"})
"""Elements that stand in lines of their own, without a blank line between."""

_CHARSET = re.compile(rb"<meta[^<>]*?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_SPACE = re.compile(r"\s+")


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document."""
    root = _parse(_read_text(source))
    if root is not None:
        title = _SPACE.sub(" ", root.findtext(".//head/title") or "").strip()
        yield ParsedDocument(title, html_blocks(root))


def _read_text(source: DocumentFile) -> str:
    with source.reading() as stream:
        codec = guess_encoding(stream)
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Unreadable(TOO_LARGE, f"a page of over {LARGEST >> 20} MB")
    if not codec.startswith("utf") and (match := _CHARSET.search(data[:4096])):
        with contextlib.suppress(LookupError):
            codec = codecs.lookup(match[1].decode()).name
    try:
        return data.decode(codec, "replace")
    except (LookupError, ValueError):  # codecs that are no text encodings, such as hex
        return data.decode("cp1252", "replace")


def _parse(text: str) -> "_Element | None":
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    data = text.replace("\0", "").encode("utf-8", "replace")
    if not data.strip():
        return None
    try:
        root: _Element | None = etree.fromstring(data, parser)
    except etree.LxmlError:
        return None
    if any("depth" in entry.message.lower() for entry in parser.error_log):
        raise Unreadable(DAMAGED, "elements nested too deeply")
    return root


def html_blocks(root: "_Element") -> Iterator[TextBlock]:
    """The blocks of a parsed page, which is changed."""
    from lxml import etree

    for element in root.xpath(ROLES):
        element.tag = "aside"
    etree.strip_elements(root, *LEFT_OUT, "title", with_tail=False)
    mains = root.xpath("//main | //*[@role='main']")
    own = mains[0] if len(mains) == 1 and any(text.strip() for text in mains[0].itertext()) else root
    text = _BlockText()
    for event, element in etree.iterwalk(own, events=("start", "end")):
        if event == "start":
            yield from text.enter(element)
        else:
            yield from text.leave(element, with_tail=element is not own)
    yield from text.take()


class _BlockText:
    """The text since the last border of a block."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._before = PARAGRAPH
        self._in_pre = 0
        self._level = 0

    def enter(self, element: Any) -> Iterator[TextBlock]:
        if element.tag not in IN_LINE:
            yield from self._border(element.tag)
        if element.tag == "pre":
            self._in_pre += 1
        self._level = HEADINGS.get(element.tag, self._level)
        self._add(element.text)

    def leave(self, element: Any, *, with_tail: bool) -> Iterator[TextBlock]:
        if element.tag not in IN_LINE and element.tag not in SPACES:
            yield from self._border(element.tag)
        if element.tag == "pre":
            self._in_pre -= 1
        if element.tag in HEADINGS:
            self._level = 0
        if with_tail:
            self._add(element.tail)

    def _border(self, tag: str) -> Iterator[TextBlock]:
        if tag in SPACES:
            self._parts.append(SPACES[tag])
            return
        yield from self.take()
        self._before = LINE if tag in CLOSE else PARAGRAPH

    def _add(self, text: str | None) -> None:
        if text:
            self._parts.append(text if self._in_pre else _SPACE.sub(" ", text))

    def take(self) -> Iterator[TextBlock]:
        """The block that ends here, if it has text."""
        text = "".join(self._parts).strip()
        self._parts = []
        if text and self._level:
            yield heading(text, self._level)
        elif text:
            yield from paragraph(text, self._before)
