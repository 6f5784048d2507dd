"""The official MS MARCO passage layout, each file plain or .gz, and TREC Deep Learning's queries beside it.

- `collection.tsv` (id, text), as distributed, without titles. Or with titles: `corpus.tsv` (id, title, text), as
  Tevatron's and RetroMAE's scripts join it; or RocketQA's own `para.txt` and `para.title.txt`, which are in ascending
  order of the passage's number, so that they are merged as they stream by. They are two corpora: published figures of
  one are not comparable with the other's. A title "-" is none.
- `queries.SPLIT.tsv` (RocketQA: `SPLIT.query.txt`) and `qrels.SPLIT.tsv`. `qrels.dev.small.tsv` is the split dev; a
  folder that holds `qrels.dev.tsv` too must name which one it means.
- `msmarco-test2019-queries.tsv` and `2019qrels-pass.txt` are the split dl19, those of 2020 dl20. Grades are 0 to 3, and
  binary measures count from 2 on: `R(rel=2)@100`. Most of the 200 queries of a year have no judgement.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa

from midmask.corpora.chunks import Piece, TextPiece, split_columns
from midmask.corpora.corpus import CorpusPieces, data_files, find_file, qrel_pieces, split_names, text_pieces
from midmask.corpora.reader import FolderReader
from midmask.corpora.text_files import open_file
from midmask.errors import UserError
from midmask.store.place import Place

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


LAYOUT = (
    "collection.tsv[.gz] (or corpus.tsv, or para.txt with para.title.txt), queries.SPLIT.tsv[.gz], "
    "qrels.SPLIT.tsv[.gz] with SPLIT train, dev or test; msmarco-test2019-queries.tsv with 2019qrels-pass.txt"
)
COLLECTIONS = ["collection.tsv", "collection.tsv.gz"]
TITLED = ["corpus.tsv", "corpus.tsv.gz"]
APART = ["para.txt", "para.txt.gz"]
TITLES = ["para.title.txt", "para.title.txt.gz"]
DEEP_LEARNING = {"dl19": "2019", "dl20": "2020"}


def parse_passage(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line; the collection has no titles."""
    doc_id, passage = split_columns(text, "id", "text")
    return doc_id.strip(), "", passage


def parse_titled(text: str) -> tuple[str, str, str]:
    """(doc_id, title, text) of one line of three columns."""
    doc_id, title, passage = split_columns(text, "id", "title", "text")
    return doc_id.strip(), plain_title(title), passage


def parse_query(text: str) -> tuple[str, str]:
    """(query_id, text) of one line."""
    query_id, query = split_columns(text, "id", "text")
    return query_id.strip(), query


def open_msmarco(folder: Place, name: str, max_characters: int) -> CorpusPieces:
    """The corpus in a folder of official files.

    Raises:
        UserError: naming what is missing, and the layout.
    """
    limits = {"max_characters": max_characters, "form": "tabs"}
    passages = find_file(folder, [*COLLECTIONS, *TITLED, *APART], LAYOUT)
    parse = parse_titled if passages in TITLED else parse_passage
    docs = text_pieces("docs", folder, [passages], parse, limits, whole=passages in APART)
    titles = find_file(folder, TITLES, LAYOUT) if passages in APART else ""
    names = data_files(folder)
    files = split_names([file for file in names if file.startswith("qrels.")], prefix="qrels")
    queries = sorted(file for file in names if _holds_queries(file))
    if bool(files) != bool(queries):
        missing = "qrels.SPLIT.tsv" if queries else "queries.SPLIT.tsv"
        raise UserError(f"{folder}: {missing} is missing; wanted layout: {LAYOUT}")
    for split, year in DEEP_LEARNING.items():
        pair = _deep_learning(folder, names, year)
        if pair:
            queries, files = [*queries, pair[0]], {**files, split: pair[1]}
    return CorpusPieces(
        name,
        _add_titles(docs, titles),
        text_pieces("queries", folder, queries, parse_query, limits),
        qrel_pieces(folder, files, max_characters),
        beside=(titles,) if titles else (),
    )


def _add_titles(docs: tuple[TextPiece, ...], titles: str) -> tuple[Piece, ...]:
    return tuple(TitledPiece(piece, titles) for piece in docs) if titles else docs


def _holds_queries(file: str) -> bool:
    name = file.removesuffix(".gz")
    return (name.startswith("queries.") and name.endswith(".tsv")) or name.endswith(".query.txt")


def _deep_learning(folder: Place, names: list[str], year: str) -> tuple[str, str] | None:
    """The year's queries and judgements; the one is refused without the other."""
    wanted = [f"msmarco-test{year}-queries.tsv", f"{year}qrels-pass.txt"]
    present = [find_file(folder, [name, f"{name}.gz"], LAYOUT, optional=True) for name in wanted]
    for name, file, other in zip(wanted, present, present[::-1], strict=True):
        if other and not file:
            raise UserError(f"{folder}: {name} is missing, which belongs to {other}; wanted layout: {LAYOUT}")
    return (present[0], present[1]) if present[0] else None


READER = FolderReader(LAYOUT, open_msmarco)
