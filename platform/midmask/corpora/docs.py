"""Documents: a folder of texts, Markdown, reStructuredText, HTML, PDF and tables at any depth, or one such file.

Documents become passages (`documents/passages.py`) whose ids state the file and the place in it (`provenance.py`).
Files of other kinds are left out and counted; documents that give no text are quarantined, each with its reason.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from midmask.artifact import Place
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.documents.kinds import KINDS, ending, refuse_missing_packages
from midmask.corpora.documents.listing import Listing, list_documents, showing
from midmask.corpora.documents.piece import Cutting, DocumentPiece
from midmask.corpora.documents.source import Columns, DocumentFile
from midmask.corpora.provenance import quote_name
from midmask.corpora.sentences import splitter
from midmask.errors import UserError
from midmask.identity import library_versions

LAYOUT = (
    f"documents at any depth of a folder ({', '.join(KINDS)}), or one such file; tables hold a document in each row "
    "(corpus.text_column, corpus.title_column); passages have ids such as guide/install.md#120-860; HTML and PDF need "
    "the extra documents"
)
CUTTING_VERSION = 1
"""Raised whenever a document is read or cut into other passages."""

PIECE_BYTES, PIECE_FILES = 2 << 20, 500
PARSERS = ("charset-normalizer", "markdown-it-py", "lxml", "pypdf")


def open_documents(folder: Place, name: str, cutting: Cutting) -> CorpusPieces:
    """The documents of a folder, or a file, in the order of their paths.

    Raises:
        UserError: if there is none, naming what is there instead, or a package is missing that some of them need.
    """
    listing = _list(folder)
    refuse_missing_packages(dict(listing.endings()), folder)
    pieces = [
        DocumentPiece(number, folder, files, size, cutting)
        for number, (files, size) in enumerate(_batch_files(listing))
    ]
    first = DocumentPiece(
        0, folder, pieces[0].files, pieces[0].size, cutting, tuple(_left_out(listing)), tuple(listing.closed)
    )
    return CorpusPieces(name, (first, *pieces[1:]), (), ())


def _left_out(listing: Listing) -> Iterator[tuple[str, str, int]]:
    for name, count in sorted(listing.left_out.items()):
        yield "files_left_out", name.encode("utf-8", "backslashreplace").decode(), count


def _list(folder: Place) -> Listing:
    if not folder.exists():
        raise UserError(f"there is no folder or file {folder}; wanted are {LAYOUT}")
    if not folder.is_folder():
        if ending(folder.base) not in KINDS:
            raise UserError(f"{folder} is no document by its name; read are {', '.join(KINDS)}")
        return Listing({"": folder.size()}, alone=folder.base.rsplit("/", 1)[-1])
    listing = list_documents(folder)
    if not listing.files:
        others = f"left out were {showing(listing.left_out)}" if listing.left_out else "the folder is empty"
        if listing.closed:
            others = f"{others}; {listing.closed[0][0] or folder} cannot be read ({listing.closed[0][1]})"
        raise UserError(f"{folder}: no documents in it: {others}; read are {', '.join(KINDS)}")
    return listing


def _batch_files(listing: Listing) -> Iterator[tuple[tuple[str, ...], int]]:
    """(files, bytes of their texts, estimated): 2 MB of files together, and 500 at most; a larger file alone."""
    batch: list[str] = []
    size = text = 0.0
    for file, bytes_ in listing.files.items():
        if batch and (size + bytes_ > PIECE_BYTES or len(batch) >= PIECE_FILES):
            yield tuple(batch), round(text)
            batch, size, text = [], 0, 0
        batch.append(file)
        size += bytes_
        text += bytes_ * KINDS[ending(file or listing.alone)].share
    yield tuple(batch), round(text)


def count_documents(folder: Place) -> dict[str, int]:
    """Number of documents' files of a folder by ending.

    Raises:
        UserError: as `open_documents`.
    """
    return dict(_list(folder).endings())


@dataclass(frozen=True)
class DocumentsReader:
    """Reads documents; files count by name and contents, as do the rules of cutting and the parsers' versions. Files
    that are no documents do not count: their number in the result is that of the first reading.
    """

    layout: str = LAYOUT

    def open(self, config: CorpusConfig) -> CorpusPieces:
        columns = Columns(config.text_column, config.title_column)
        cutting = Cutting(columns, config.passage_words, config.passage_overlap, config.max_characters)
        return open_documents(Place.named(config.place), config.short_name, cutting)

    def identity(self, config: CorpusConfig) -> dict[str, Any]:
        folder = Place.named(config.place)
        pieces = self.open(config).docs
        files = chain.from_iterable(piece.files for piece in pieces if isinstance(piece, DocumentPiece))
        return {
            "cutting": CUTTING_VERSION,
            "passage_words": config.passage_words,
            "passage_overlap": config.passage_overlap,
            "columns": [config.text_column, config.title_column],
            "libraries": library_versions(PARSERS) | splitter(),
            "files": _digests(folder, files),
        }


def _digests(folder: Place, files: Iterable[str]) -> dict[str, str]:
    """File -> the first 16 digits of its SHA-256, or what prevents its reading."""
    found = {}
    for file in files:
        source = DocumentFile(folder, file)
        try:
            with source.reading() as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()[:16]  # type: ignore[arg-type]
        except OSError as error:
            digest = error.strerror or type(error).__name__
        found[quote_name(file or source.name)] = digest
    return found


READER = DocumentsReader()
