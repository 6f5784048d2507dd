"""Some files of a collection of documents, read into blocks of passages; many small files are one piece."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import pyarrow as pa

from midmask.artifact import Place
from midmask.corpora.chunks import BLOCK_BYTES, BLOCKS, END, RAW_CHARACTERS, Fault, check_values
from midmask.corpora.documents.kinds import KINDS, ending
from midmask.corpora.documents.passages import CutPassage, cut_passages
from midmask.corpora.documents.source import (
    DAMAGED,
    NO_TEXT,
    UNREADABLE,
    BadRow,
    Columns,
    DocumentFile,
    ParsedDocument,
    Unreadable,
)
from midmask.corpora.provenance import Provenance, quote_name
from midmask.corpora.statistics import is_question
from midmask.errors import reason

SCHEMA = pa.schema([*BLOCKS["docs"], ("file", pa.string())])
BLOCK_ROWS = 256
"""Fewer than of other formats: the pages of a PDF take their time, and a dry run looks at a first block."""

PassageRow = tuple[object, ...]
"""A row of SCHEMA."""


@dataclass(frozen=True)
class Cutting:
    """How documents become passages: see the fields of `CorpusConfig`."""

    columns: Columns
    words: int
    overlap: int
    max_characters: int


@dataclass(frozen=True)
class DocumentPiece:
    """Files to read one after the other; picklable.

    folder: of the corpus, or its only file; then `files` is ("",). size: bytes of text, estimated. notes: counts
    that belong to no file, as (group, name, number). closed: (path, reason) of what could not be listed.
    """

    number: int
    folder: Place
    files: tuple[str, ...]
    size: int
    cutting: Cutting
    notes: tuple[tuple[str, str, int], ...] = ()
    closed: tuple[tuple[str, str], ...] = ()

    @property
    def file(self) -> str:
        """What messages call the piece; rows have the names of their own files."""
        return f"part {self.number} ({len(self.files)} files)"

    def read(self) -> Iterator[pa.Table]:
        """The passages of the files in order, and a row with a fault for each file, row or page that gives none. The
        marker row at the end holds counts as JSON, group -> name -> number: files by ending and by encoding.
        """
        counts = {group: Counter[str]() for group in ("files", "encodings")}
        for group, name, number in self.notes:
            counts.setdefault(group, Counter())[name] += number
        rows = chain(
            (self._fault(path, 0, UNREADABLE, why) for path, why in self.closed),
            *(self._read_file(DocumentFile(self.folder, file, self.cutting.columns), counts) for file in self.files),
        )
        yield from _tables(rows)
        marker = (self.number, 0, END, json.dumps(counts, ensure_ascii=False), *(None,) * (len(SCHEMA) - 4))
        yield _table([marker])

    def _read_file(self, source: DocumentFile, counts: dict[str, Counter[str]]) -> Iterator[PassageRow]:
        file = source.file or source.name
        kind = KINDS[ending(file)]
        found, encoding = False, ""
        try:
            for document in kind.read(source):
                if isinstance(document, BadRow):
                    yield self._fault(file, document.line, document.kind, document.text)
                    found = True
                    continue
                encoding = document.encoding
                for row in self._passages(file, document):
                    yield row
                    found = True
            if not found:
                raise Unreadable(NO_TEXT)
        except Unreadable as error:
            yield self._fault(file, 0, error.kind, error.detail)
        except OSError as error:
            yield self._fault(file, 0, UNREADABLE, error.strerror or reason(error))
        except RecursionError as error:
            yield self._fault(file, 0, DAMAGED, reason(error))
        if encoding:
            counts["encodings"][encoding] += 1
        if found:
            counts["files"][ending(file)] += 1

    def _passages(self, file: str, document: ParsedDocument) -> Iterator[PassageRow]:
        untitled = _stem(file) if document.row is None else ""
        cutting = self.cutting
        passages = cut_passages(document.blocks, document.title, cutting.words, cutting.overlap, untitled=untitled)
        first = list(islice(passages, 2))
        whole = document.row is not None and len(first) == 1
        for number, passage in enumerate(chain(first, passages), start=1):
            span = Provenance(file, passage.start, passage.end, document.row)
            doc_id = Provenance(file, row=document.row).doc_id if whole else span.doc_id
            yield self._row(file, document.row or number, doc_id, passage)

    def _row(self, file: str, line: int, doc_id: str, passage: CutPassage) -> PassageRow:
        try:
            values = check_values("docs", (doc_id, passage.title, passage.text), self.cutting.max_characters)
        except Fault as fault:
            return self._fault(file, line, fault.kind, passage.text, fault.reason)
        facts = (len(passage.text.split()), is_question(passage.text))
        return (self.number, line, None, None, None, *values, *facts, quote_name(file))

    def _fault(self, file: str, line: int, kind: str, text: str, reason: str = "") -> PassageRow:
        quoted = text[:RAW_CHARACTERS].encode("utf-8", "backslashreplace").decode()
        return (self.number, line, kind, quoted, reason or None, *(None,) * (len(SCHEMA) - 6), quote_name(file))


def _stem(file: str) -> str:
    """A file's name as a title: without its ending, with blanks for `_` and `-`."""
    name = file.rsplit("/", 1)[-1]
    stem = name[: -len(ending(name))].replace("_", " ").replace("-", " ")
    return " ".join(stem.encode("utf-8", "replace").decode().split())


def _tables(rows: Iterable[PassageRow]) -> Iterator[pa.Table]:
    """The rows in blocks of at most 256 rows and some 4 MB."""
    waiting: list[PassageRow] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(waiting) >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield _table(waiting)
            waiting, size = [], 0
    if waiting:
        yield _table(waiting)


def _table(rows: list[PassageRow]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
