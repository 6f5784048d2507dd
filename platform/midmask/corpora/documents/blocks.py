"""What a reader of documents takes (a file, decoded into lines) and gives (blocks of text); plain text (.txt) itself.

Blocks are the headings and paragraphs of a document in order. Put together they are its extracted text, to which the
offsets of passages refer. Plain text has paragraphs that blank lines separate, without headings.

Encodings are guessed from a file's bytes. A byte-order mark decides; else UTF-8, if all bytes are valid in it or most
of what is not ASCII is; else charset-normalizer's guess on a sample. With very few characters beyond ASCII that guess
is a lottery, so there it is Windows-1252, which holds Latin-1. Bytes that the encoding lacks become U+FFFD.
"""

import codecs
import contextlib
import io
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from midmask.corpora.opening import HEAD, is_binary, wide_encoding
from midmask.store.place import Place

LONGEST = 20_000
"""Characters of a block; a longer paragraph becomes several."""

LARGEST = 50 << 20
"""Bytes of a file of markup: parsed it takes up to ten times as much memory."""

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


_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


def text_blocks(text: str) -> Iterator[TextBlock]:
    """The paragraphs of plain text, which blank lines separate."""
    for part in _BLANK_LINES.split(text):
        yield from paragraph(part)


EMPTY_FILE, BINARY, NO_TEXT = "empty file", "binary file", "no text in the file"
UNREADABLE, DAMAGED, ENCRYPTED = "unreadable file", "damaged file", "encrypted file"
TOO_LARGE, NO_COLUMN = "too large file", "no column of texts"
EMPTY_ROW = "row without text"
TOLERATED = frozenset({EMPTY_FILE, BINARY, NO_TEXT, UNREADABLE, DAMAGED, ENCRYPTED, TOO_LARGE, NO_COLUMN, EMPTY_ROW})
"""Faults of a whole file, or of all that follows from some place in it, and empty cells. Folders of people have such
files, so they are quarantined and counted, but not as bad rows."""


class Unreadable(Exception):
    """From here on a file gives no text. kind: one of TOLERATED. detail: the reason, for people."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


@dataclass(frozen=True)
class DocumentFile:
    """One file to read. folder: of the corpus. file: path below it; "" if the place is the file itself. text_column,
    title_column: of a table, where the user names them; None: chosen by their names and contents.
    """

    folder: Place
    file: str
    text_column: str | None = None
    title_column: str | None = None

    @property
    def place(self) -> Place:
        return self.folder / self.file if self.file else self.folder

    @property
    def name(self) -> str:
        """The last part of the path."""
        return (self.file or self.folder.base).rsplit("/", 1)[-1]

    @contextlib.contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file as a seekable binary stream."""
        with self.place.reading() as raw:
            yield io.BufferedReader(raw, 1 << 20)  # type: ignore[type-var]


@dataclass
class ParsedDocument:
    """The title and text of a file or of a row of a table."""

    title: str  # complete once the blocks are read; "" without one
    blocks: Iterator[TextBlock]
    row: int | None = None  # number of a table's row, from 1


@dataclass(frozen=True)
class BadRow:
    """A row of a table, or a page, from which no document can be read."""

    kind: str  # the fault
    line: int  # number of the row or page, from 1
    text: str


CHUNK = 1 << 20
FEW = 8
"""Number of bytes beyond ASCII below which no guess is tried."""

UNMARKED = ("utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le", "utf_7")
"""Encodings that any bytes may seem to be: taken only with a mark, or by their zero bytes (`wide_encoding`)."""


def guess_encoding(stream: BinaryIO) -> str:
    """The codec of a stream's text; reads all of it, and leaves it at its start.

    Raises:
        Unreadable: for an empty file, or one of bytes that no text has.
    """
    head = stream.read(HEAD)
    if not head.strip() and not stream.read(1):
        raise Unreadable(EMPTY_FILE)
    codec = wide_encoding(head)
    if not codec and not head.startswith(codecs.BOM_UTF8) and is_binary(head):
        raise Unreadable(BINARY, "it holds control characters")
    stream.seek(0)
    if not codec:
        codec = _guess_bytewise(stream)
        stream.seek(0)
    return codec


_ASCII = bytes(range(128))


def _guess_bytewise(stream: BinaryIO) -> str:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    encoded = replaced = 0
    sample = b""
    while data := stream.read(CHUNK):
        text = decoder.decode(data)
        if data.isascii():
            continue
        wrong = text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
        replaced += wrong
        encoded += len(text) - len(text.encode("ascii", "ignore")) - wrong
        if wrong > 0 and not sample:
            first = len(data) - len(data.lstrip(_ASCII))
            sample = data[max(0, first - 512) :][:HEAD]
    if replaced <= 0 or encoded > replaced:
        return "utf-8-sig"
    if len(sample.translate(None, _ASCII)) >= FEW:
        from charset_normalizer import from_bytes

        logging.getLogger("charset_normalizer").setLevel(logging.WARNING)
        best = from_bytes(sample, cp_exclusion=list(UNMARKED)).best()
        if best is not None and best.encoding not in ("ascii", "utf_8"):
            return str(best.encoding)
    return "cp1252"


def read_text(source: DocumentFile, largest: int | None = None) -> str:
    """The text of a file, with `\\n` at line ends and without NUL characters.

    Args:
        largest: bytes of a file from which nothing is read; None: any size is read.

    Raises:
        Unreadable: as `guess_encoding`, and for a file that is too large.
    """
    if largest is not None and source.place.size() > largest:
        raise Unreadable(TOO_LARGE, f"over {largest >> 20} MB")
    with source.reading() as stream, io.TextIOWrapper(stream, guess_encoding(stream), errors="replace") as text:
        return text.read().replace("\0", "")


def read_plain(source: DocumentFile) -> Iterator[ParsedDocument | BadRow]:
    """One document."""
    yield ParsedDocument("", text_blocks(read_text(source)))
