"""PDF (.pdf): the text of its pages, as pypdf extracts it. Lines of a paragraph are joined, and words that a line end
divides put together; a page that has no text (a scan) gives none.
"""

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from midmask.corpora.documents.blocks import (
    DAMAGED,
    EMPTY_FILE,
    ENCRYPTED,
    NO_TEXT,
    BadRow,
    DocumentFile,
    ParsedDocument,
    TextBlock,
    Unreadable,
    paragraph,
)
from midmask.errors import reason

if TYPE_CHECKING:
    from pypdf import PdfReader

_DIVIDED = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")
_LINE_END = re.compile(r"[ \t]*\n[ \t]*")
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_LONGEST_TITLE = 200
SHOWN_PAGES = 10


def read_documents(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document; pypdf may fail in any way on a damaged file."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    with source.reading() as stream:
        if not stream.read(1):
            raise Unreadable(EMPTY_FILE)
        stream.seek(0)
        try:
            from pypdf import PdfReader

            reader = PdfReader(stream)
            if reader.is_encrypted and not reader.decrypt(""):
                raise Unreadable(ENCRYPTED, "it needs a password")
            pages, title = len(reader.pages), _title(reader)
        except Unreadable:
            raise
        except Exception as error:
            kind = ENCRYPTED if "crypt" in str(error).lower() else DAMAGED
            raise Unreadable(kind, reason(error)) from None
        yield ParsedDocument(title, _page_blocks(reader, pages))


def _title(reader: "PdfReader") -> str:
    title = reader.metadata.title if reader.metadata else None
    return " ".join(str(title or "").split())[:_LONGEST_TITLE]


def _page_blocks(reader: "PdfReader", pages: int) -> Iterator[TextBlock]:
    """The blocks of the pages that can be read.

    Raises:
        Unreadable: after the last one, if there is no text or a page could not be read.
    """
    found, broken, why = False, [], ""
    for number in range(pages):
        try:
            text = reader.pages[number].extract_text()
        except Exception as error:
            broken.append(str(number + 1))
            why = reason(error)
            continue
        for block in page_blocks(text):
            found = True
            yield block
    if broken:
        shown = ", ".join(broken[:SHOWN_PAGES]) + (", …" if len(broken) > SHOWN_PAGES else "")
        raise Unreadable(DAMAGED, f"{len(broken)} of {pages} pages: {shown} ({why})")
    if not found:
        raise Unreadable(NO_TEXT, f"{pages} pages without text, perhaps scanned")


def page_blocks(text: str) -> Iterator[TextBlock]:
    """The paragraphs of a page's text."""
    text = text.replace("\0", "").encode("utf-8", "replace").decode()
    text = _DIVIDED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    for part in _BLANK_LINE.split(text):
        yield from paragraph(_LINE_END.sub(" ", part))
