"""Documents: a folder of texts, Markdown, HTML, PDF and tables at any depth, or one such file.

Documents become passages whose ids state the file and the place in it (`documents/passages.py`). Many small files are
read as one piece. Files of other kinds are left out and counted; documents that give no text are quarantined, each with
its reason.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from midmask.core.config import library_versions
from midmask.corpora.chunks import BLOCKS, END, RAW_CHARACTERS, Fault, ParsedBlock, batch_files, check_values
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces, is_leftover
from midmask.corpora.documents import KINDS, ending, refuse_missing_packages
from midmask.corpora.documents.blocks import (
    DAMAGED,
    NO_TEXT,
    UNREADABLE,
    BadRow,
    DocumentFile,
    ParsedDocument,
    Unreadable,
)
from midmask.corpora.documents.passages import CutPassage, Provenance, cut_passages, quote_name, splitter
from midmask.errors import UserError, reason
from midmask.store.place import Place

HIDDEN, NO_ENDING, SPECIAL, CLOSED = "hidden", "without ending", "no regular file", "closed folder"
NOT_UTF8 = "name that is no UTF-8"

LAYOUT = (
    f"documents at any depth of a folder ({', '.join(KINDS)}), or one such file; tables hold a document in each row "
    "(corpus.text_column, corpus.title_column); passages have ids such as guide/install.md#120-860; HTML and PDF need "
    "the extra documents"
)


@dataclass
class Listing:
    """files: path below the folder -> bytes, in the order of the paths; "" is the path of a place that is a file.
    left_out: ending (or "hidden", …) -> number of files that are no documents; a hidden or closed folder counts as one.
    """

    files: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, path: str, size: int) -> None:
        """Takes a file in, or counts it as left out."""
        end = ending(path)
        if any("\udc80" <= sign <= "\udcff" for sign in path):  # as Python reads bytes that are no UTF-8
            self.left_out[NOT_UTF8] += 1
        elif any(is_leftover(part) for part in path.split("/")):
            self.left_out[HIDDEN] += 1
        elif end in KINDS:
            self.files[path] = size
        else:
            self.left_out[end or NO_ENDING] += 1


def list_documents(folder: Place) -> Listing:
    """The files below a folder, or the place itself. Links are followed; each folder is entered once, so that loops
    end.

    Raises:
        UserError: if there is none, naming what is there instead.
    """
    if not folder.exists():
        raise UserError(f"there is no folder or file {folder}; wanted are {LAYOUT}")
    if not folder.is_folder():
        if ending(folder.base) not in KINDS:
            raise UserError(f"{folder} is no document by its name; read are {', '.join(KINDS)}")
        return Listing({"": folder.size()})
    listing = Listing()
    if folder.is_path:
        _walk(folder.uri, listing)
    else:
        for path, size in folder.sizes().items():
            listing.add(path, size)
    if not listing.files:
        others = f"left out were {showing(listing.left_out)}" if listing.left_out else "the folder is empty"
        raise UserError(f"{folder}: no documents in it: {others}; read are {', '.join(KINDS)}")
    listing.files = dict(sorted(listing.files.items()))
    return listing


def _walk(root: str, listing: Listing) -> None:
    def close(error: OSError) -> None:
        listing.left_out[CLOSED] += 1

    seen: set[str] = set()
    for path, folders, files in os.walk(root, onerror=close, followlinks=True):
        if (own := os.path.realpath(path)) in seen:
            folders.clear()
            continue
        seen.add(own)
        listing.left_out.update(HIDDEN for name in folders if is_leftover(name))
        folders[:] = sorted(name for name in folders if not is_leftover(name))
        for name in sorted(files):
            file = os.path.join(path, name)
            if os.path.isfile(file):
                listing.add(os.path.relpath(file, root), os.path.getsize(file))
            else:
                listing.left_out[SPECIAL] += 1


def showing(counts: Counter[str]) -> str:
    """Counts as text: `.png 12, .py 3`, the most frequent first."""
    return ", ".join(f"{name} {number:,}" for name, number in counts.most_common(20))


SCHEMA = pa.schema([*BLOCKS["docs"], ("file", pa.string())])
BLOCK_ROWS = 256
"""Fewer than of other formats: the pages of a PDF take their time, and a dry run looks at a first block."""

PassageRow = tuple[Any, ...]
"""line, values or None, fault, reason, text of a fault, file: as `ParsedBlock.add` takes it."""


@dataclass(frozen=True)
class DocumentPiece:
    """Files to read one after the other; picklable.

    folder: of the corpus, or its only file; then `files` is ("",). size: bytes of text, estimated.
    """

    number: int
    folder: Place
    files: tuple[str, ...]
    size: int
    config: CorpusConfig

    @property
    def file(self) -> str:
        """What messages call the piece; rows have the names of their own files."""
        return f"part {self.number} ({len(self.files)} files)"

    def read(self) -> Iterator[pa.Table]:
        """The passages of the files in order, and a row with a fault for each file, row or page that gives none."""
        columns = self.config.text_column, self.config.title_column
        block = ParsedBlock(SCHEMA, self.number, BLOCK_ROWS)
        for file in self.files:
            for row in self._read_file(DocumentFile(self.folder, file, *columns)):
                block.add(*row)
                if block.full:
                    yield block.take()
        block.add(0, None, END, "", None, None)
        yield block.take()

    def _read_file(self, source: DocumentFile) -> Iterator[PassageRow]:
        file = source.file or source.name
        kind = KINDS[ending(file)]
        found = False
        try:
            for document in kind.read(source):
                if isinstance(document, BadRow):
                    yield self._fault(file, document.line, document.kind, document.text)
                    found = True
                    continue
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

    def _passages(self, file: str, document: ParsedDocument) -> Iterator[PassageRow]:
        untitled = _stem(file) if document.row is None else ""
        passages = cut_passages(document.blocks, document.title, self.config.passage_words, untitled=untitled)
        first = list(islice(passages, 2))
        whole = document.row is not None and len(first) == 1
        for number, passage in enumerate(chain(first, passages), start=1):
            span = Provenance(file, passage.start, passage.end, document.row)
            doc_id = Provenance(file, row=document.row).doc_id if whole else span.doc_id
            yield self._row(file, document.row or number, doc_id, passage)

    def _row(self, file: str, line: int, doc_id: str, passage: CutPassage) -> PassageRow:
        try:
            values = check_values("docs", (doc_id, passage.title, passage.text), self.config.max_characters)
        except Fault as fault:
            return self._fault(file, line, fault.kind, passage.text, fault.reason)
        return (line, values, None, "", None, quote_name(file))

    def _fault(self, file: str, line: int, kind: str, text: str, reason: str = "") -> PassageRow:
        quoted = text[:RAW_CHARACTERS].encode("utf-8", "backslashreplace").decode()
        return (line, None, kind, reason, quoted, quote_name(file))


def _stem(file: str) -> str:
    """A file's name as a title: without its ending, with blanks for `_` and `-`."""
    name = file.rsplit("/", 1)[-1]
    stem = name[: -len(ending(name))].replace("_", " ").replace("-", " ")
    return " ".join(stem.encode("utf-8", "replace").decode().split())


CUTTING_VERSION = 1
"""Raised whenever a document is read or cut into other passages."""

PIECE_BYTES, PIECE_FILES = 2 << 20, 500
PARSERS = ("charset-normalizer", "markdown-it-py", "lxml", "pypdf")


@dataclass(frozen=True)
class DocumentsReader:
    """Reads documents; files count by name and contents, as do the rules of cutting and the parsers' versions. Files
    that are no documents do not count: their number in the result is that of the first reading.
    """

    layout: str = LAYOUT

    def open(self, config: CorpusConfig) -> CorpusPieces:
        """The documents in the order of their paths.

        Raises:
            UserError: if there is none, naming what is there instead, or a package is missing that some of them need.
        """
        folder = Place.named(config.place)
        listing = list_documents(folder)
        refuse_missing_packages(Counter(ending(file or folder.base) for file in listing.files), folder)
        sizes = {file: size * KINDS[ending(file or folder.base)].share for file, size in listing.files.items()}
        return CorpusPieces(
            [
                DocumentPiece(number, folder, files, round(sum(sizes[file] for file in files)), config)
                for number, files in enumerate(batch_files(listing.files.items(), PIECE_BYTES, PIECE_FILES))
            ],
            left_out=dict(sorted(listing.left_out.items())),
        )

    def identity(self, config: CorpusConfig) -> dict[str, Any]:
        folder = Place.named(config.place)
        files = document_files(self.open(config))
        versions = {end: KINDS[end].version for file in files if KINDS[end := ending(file or folder.base)].version > 1}
        return {
            "cutting": CUTTING_VERSION,
            "passage_words": config.passage_words,
            "columns": [config.text_column, config.title_column],
            "libraries": library_versions(PARSERS) | splitter(),
            "files": {
                quote_name(source.file or source.name): _digest(source.place)
                for source in (DocumentFile(folder, file) for file in files)
            },
            **({"versions": versions} if versions else {}),
        }


def document_files(corpus: CorpusPieces) -> list[str]:
    """The documents that are read, by their paths below the folder."""
    return [file for piece in corpus.docs if isinstance(piece, DocumentPiece) for file in piece.files]


def _digest(file: Place) -> str:
    """The first 16 digits of a file's SHA-256, or what prevents its reading."""
    try:
        return file.digest()
    except OSError as error:
        return error.strerror or type(error).__name__


READER = DocumentsReader()
