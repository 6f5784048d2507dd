"""What a reader of documents takes (a file, decoded into lines) and gives (blocks of text); plain text (.txt) itself.

Blocks are the headings and paragraphs of a document in order. Put together they are its extracted text, to which the
offsets of passages refer. Plain text has paragraphs that blank lines separate, without headings.
"""

import codecs
import contextlib
import io
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TextIO

from midmask.corpora.chunks import Fault
from midmask.corpora.opening import is_binary
from midmask.store.place import Place

LARGEST = 50 << 20
"""Bytes of a file of text that is read as a whole."""

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


_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


def text_blocks(text: str) -> Iterator[TextBlock]:
    """The paragraphs of plain text, which blank lines separate."""
    for part in _BLANK_LINES.split(text):
        if part := part.strip():
            yield TextBlock(part)


NO_TEXT, DAMAGED, NO_COLUMN, EMPTY_ROW = "no text in the file", "damaged file", "no column of texts", "row without text"
TOLERATED = frozenset({NO_TEXT, DAMAGED, NO_COLUMN, EMPTY_ROW})
"""Faults of a whole file, or of all that follows from some place in it, and empty cells. Folders of people have such
files, so they are quarantined and counted, but not as bad rows."""


class Unreadable(Fault):
    """What gives no document: a row of a table; or, with line 0, a file from here on, which then raises it.

    kind: of a file one of TOLERATED. text: the reason, for people. line: number of the row, from 1.
    """

    def __init__(self, kind: str, text: str = "", line: int = 0) -> None:
        super().__init__(kind, raw=text)
        self.line = line


@dataclass(frozen=True)
class DocumentFile:
    """One file to read. text_column, title_column: of a table, where the user names them."""

    name: str
    place: Place
    text_column: str | None = None
    title_column: str | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file as a seekable binary stream; Unreadable if it is empty."""
        with self.place.reading() as raw:
            stream = io.BufferedReader(raw, 1 << 20)  # type: ignore[type-var]
            if not stream.peek(1):
                raise Unreadable(NO_TEXT, "an empty file")
            yield stream

    @contextlib.contextmanager
    def reading_text(self) -> Iterator[TextIO]:
        """The file as text; bytes that its encoding lacks are U+FFFD, line ends as they are."""
        with self.reading() as stream:
            codec = guess_encoding(stream.read(SAMPLE))
            stream.seek(0)
            yield io.TextIOWrapper(stream, codec, errors="replace", newline="")


@dataclass
class ParsedDocument:
    """The title and text of a file or of a row of a table."""

    title: str  # complete once the blocks are read; "" without one
    blocks: Iterator[TextBlock]
    row: int | None = None  # number of a table's row, from 1


SAMPLE = 1 << 20
"""Bytes of a file's beginning that tell its encoding."""
FEW = 8
"""Number of bytes beyond ASCII below which a guess is a lottery; there it is Windows-1252, which holds Latin-1."""


def guess_encoding(sample: bytes) -> str:
    """The codec of a text that begins with these bytes: UTF-8 if all are valid in it or most of what is not ASCII is,
    else charset-normalizer's guess.

    Raises:
        Unreadable: for bytes that no text has.
    """
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if is_binary(sample):
        raise Unreadable(DAMAGED, "a binary file, or UTF-16 without a byte-order mark")
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(sample)
    wrong = text.count("\ufffd")
    beyond = len(text) - len(text.encode("ascii", "ignore")) - wrong
    if wrong <= beyond:
        return "utf-8-sig"
    if sum(byte > 127 for byte in sample) < FEW:
        return "cp1252"
    from charset_normalizer import from_bytes

    logging.getLogger("charset_normalizer").setLevel(logging.WARNING)
    best = from_bytes(sample, cp_exclusion=["utf_16", "utf_32", "utf_7", "utf_8"]).best()
    return "cp1252" if best is None or best.encoding == "ascii" else str(best.encoding)


def plain_text(text: str) -> str:
    """A text with `\\n` at line ends and without NUL characters."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def read_text(source: DocumentFile) -> str:
    """The text of a file; Unreadable for a file that is too large, and as `guess_encoding`."""
    if source.place.size() > LARGEST:
        raise Unreadable(DAMAGED, f"over {LARGEST >> 20} MB of text; divide the file")
    with source.reading_text() as text:
        return plain_text(text.read())


def read_plain(source: DocumentFile) -> Iterator[ParsedDocument]:
    """One document."""
    yield ParsedDocument("", text_blocks(read_text(source)))
