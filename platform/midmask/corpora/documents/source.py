"""What a reader of one kind of documents takes and gives, and how a file is found unreadable."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from midmask.artifact import Place
from midmask.corpora.documents.blocks import TextBlock

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
class Columns:
    """The columns of tables that the user names; None: chosen by their names and contents."""

    text: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class DocumentFile:
    """One file to read. folder: of the corpus. file: path below it; "" if the place is the file itself."""

    folder: Place
    file: str
    columns: Columns = field(default=Columns())

    @property
    def place(self) -> Place:
        return self.folder / self.file if self.file else self.folder

    @property
    def name(self) -> str:
        """The last part of the path."""
        return (self.file or self.folder.base).rsplit("/", 1)[-1]

    @contextlib.contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file as a seekable binary stream. Paths are opened by Python, since their names may be no UTF-8."""
        if self.place.is_path:
            with open(self.place.uri, "rb") as stream:
                yield stream
        else:
            with self.place.reading() as raw:
                yield io.BufferedReader(raw, 1 << 20)  # type: ignore[type-var]


@dataclass
class ParsedDocument:
    """What a file, or a row of a table, contains. The title is complete once the blocks are read.

    title: its own, "" without one. encoding: of the file's bytes, "" where its kind states it. row: of a table, from 1.
    """

    title: str
    blocks: Iterator[TextBlock]
    encoding: str = ""
    row: int | None = None


@dataclass(frozen=True)
class BadRow:
    """A row of a table, or a page, that gives no document. kind: the fault. line: row or page, from 1."""

    kind: str
    line: int
    text: str
