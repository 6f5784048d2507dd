"""PDF (.pdf): the text of its pages, as pypdf extracts it. Lines of a paragraph are joined, and words that a line end
divides put together; a page that has no text (a scan) gives none.
"""

import logging
import re
from collections.abc import Iterator
from typing import Any

from midmask.corpora.documents.blocks import (
    DAMAGED,
    DocumentFile,
    ParsedDocument,
    TextBlock,
    Unreadable,
    text_blocks,
)
from midmask.errors import reason

_DIVIDED = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")
_LINE_END = re.compile(r"[ \t]*\n[ \t]*")
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_LONGEST_TITLE = 200


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument]:
    """One document; pypdf may fail in any way on a damaged or an encrypted file, and from there on it gives no text."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with source.reading() as stream:
        try:
            reader = PdfReader(stream)
            title = " ".join(str(reader.metadata.title or "").split()) if reader.metadata else ""
        except Exception as error:
            raise Unreadable(DAMAGED, reason(error)) from None
        yield ParsedDocument(title[:_LONGEST_TITLE], _blocks(reader))


def _blocks(reader: Any) -> Iterator[TextBlock]:
    broken, why = [], ""
    for number in range(len(reader.pages)):
        try:
            text = reader.pages[number].extract_text()
        except Exception as error:
            broken.append(number + 1)
            why = reason(error)
            continue
        yield from page_blocks(text)
    if broken:
        raise Unreadable(DAMAGED, f"{len(broken)} of {len(reader.pages)} pages, the first {broken[0]}: {why}")


def page_blocks(text: str) -> Iterator[TextBlock]:
    """The paragraphs of a page's text."""
    text = text.replace("\0", "").encode("utf-8", "replace").decode()
    text = _DIVIDED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for part in _BLANK_LINE.split(text):
        yield from text_blocks(_LINE_END.sub(" ", part))
