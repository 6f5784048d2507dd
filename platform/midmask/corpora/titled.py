"""Passages whose titles lie in a file of their own, as in RocketQA's MS MARCO: `para.txt` and `para.title.txt`.

Both files are in ascending order of the passage's number, so they are merged as they stream by.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa

from midmask.corpora.chunks import TextPiece
from midmask.corpora.gzipped import open_file
from midmask.corpora.values import split_columns
from midmask.errors import UserError

log = logging.getLogger(__name__)

NO_TITLE = "-"
"""What RocketQA's files hold where a page has no title."""


LONGEST_NUMBER, LONGEST_TITLE = 18, 1 << 20
"""Digits of a passage's number, and bytes of a line of titles."""


def plain_title(title: str) -> str:
    return "" if title.strip() == NO_TITLE else title.strip()


@dataclass(frozen=True)
class TitledPiece:
    """A whole file of passages, read beside the file of their titles."""

    passages: TextPiece
    titles: str

    @property
    def number(self) -> int:
        return self.passages.number

    @property
    def file(self) -> str:
        return self.passages.file

    @property
    def size(self) -> int:
        return self.passages.size

    def read(self) -> Iterator[pa.Table]:
        """As `TextPiece.read`; titles of passages that are not there are counted in the log.

        Raises:
            UserError: also where one of the files is not in ascending order.
        """
        with open_file(self.passages.folder, self.titles) as stream:
            titles = Titles(stream, f"{self.passages.folder / self.titles}")
            yield from replace(self.passages, parse=titles.passage).read()
            unused = titles.count_unused()
        if unused:
            log.warning("%s: titles without a passage in %s: %d", self.titles, self.file, unused)


class Titles:
    """Rows `number<TAB>title`, ascending, that wait for their passages."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._name = name
        self._lines = enumerate(iter(lambda: stream.readline(LONGEST_TITLE), b""), start=1)
        self._passage = self._title = -1
        self._text = ""
        self._unused = 0
        self._waiting = self._advance()

    def passage(self, text: str) -> tuple[str, str, str]:
        """(doc_id, title, text) of a line `number<TAB>text`; to be called in ascending order.

        Raises:
            UserError: if it is not called in that order, since titles would be missed.
        """
        doc_id, body = split_columns(text, "number", "text")
        number = int(doc_id)
        if number < self._passage:
            raise UserError(
                f"passage {number} stands after passage {self._passage}, so titles cannot be found: sort the passages "
                f"and {self._name} by number (sort -n -k1,1)"
            )
        self._passage = number
        while self._waiting and self._title < number:
            self._unused += 1
            self._waiting = self._advance()
        title = ""
        if self._waiting and self._title == number:
            title = self._text
            self._waiting = self._advance()
        return doc_id.strip(), plain_title(title), body

    def count_unused(self) -> int:
        """Titles that no passage took; to be called at the end."""
        while self._waiting:
            self._unused += 1
            self._waiting = self._advance()
        return self._unused

    def _advance(self) -> bool:
        """Goes on to the next title; False at the end."""
        for line, data in self._lines:
            if not data.strip():
                continue
            number, tab, title = data.decode(errors="replace").removeprefix("\ufeff").partition("\t")
            if not tab or not number.strip().isdecimal() or len(number) > LONGEST_NUMBER:
                raise UserError(f"{self._name}, line {line}: wanted is number<TAB>title, found {data[:80]!r}")
            if int(number) <= self._title:
                raise UserError(
                    f"{self._name}, line {line}: title {int(number)} stands after {self._title}; sort the file by "
                    "number (sort -n -k1,1)"
                )
            self._title, self._text = int(number), title
            return True
        return False
