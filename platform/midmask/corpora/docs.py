"""Documents: a folder of texts, Markdown, HTML, PDF and tables at any depth, or one such file.

Documents become passages whose ids state the file and the place in it (`documents/passages.py`). Files of other kinds
are left out and counted; documents that give no text are quarantined, each with its reason.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any

from midmask.core.config import library_versions
from midmask.corpora.chunks import Piece
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces, is_leftover
from midmask.corpora.documents import KINDS, ending
from midmask.corpora.documents.blocks import DAMAGED, NO_TEXT, DocumentFile, ParsedDocument, Unreadable
from midmask.corpora.documents.passages import cut_passages, passage_id, splitter
from midmask.corpora.reader import Reader
from midmask.errors import UserError, how_to_install, reason
from midmask.store.place import Place

HIDDEN, NO_ENDING, NOT_UTF8 = "hidden", "without ending", "name that is no UTF-8"

LAYOUT = (
    f"documents at any depth of a folder ({', '.join(KINDS)}), or one such file; tables hold a document in each row "
    "(corpus.text_column, corpus.title_column); passages have ids such as guide/install.md#120-860; HTML and PDF "
    "need the extra documents"
)


def list_documents(folder: Place) -> tuple[dict[str, int], dict[str, int]]:
    """Path below the folder -> bytes of the documents in it; ending (or "hidden", …) -> number of the other files.

    Raises:
        UserError: if there is no document, or a folder in it cannot be read.
    """
    documents: dict[str, int] = {}
    left_out: Counter[str] = Counter()
    for path, size in _walk(folder.uri) if folder.is_path else folder.sizes().items():
        end = ending(path)
        if any("\udc80" <= sign <= "\udcff" for sign in path):  # as Python reads bytes that are no UTF-8
            left_out[NOT_UTF8] += 1
        elif any(is_leftover(part) for part in path.split("/")):
            left_out[HIDDEN] += 1
        elif end in KINDS:
            documents[path] = size
        else:
            left_out[end or NO_ENDING] += 1
    if not documents:
        others = f"left out were {dict(left_out.most_common(20))}" if left_out else "the folder is empty"
        raise UserError(f"{folder}: no documents in it: {others}; read are {', '.join(KINDS)}")
    return dict(sorted(documents.items())), dict(sorted(left_out.items()))


def _walk(root: str) -> Iterator[tuple[str, int]]:
    """Path below a folder and bytes of each file; links to folders are not followed, hidden folders not entered."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({reason(error)}); mend its permissions, or move it away")

    for path, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not is_leftover(name)]
        for file in (os.path.join(path, name) for name in files):
            if os.path.isfile(file):
                yield os.path.relpath(file, root), os.path.getsize(file)


Passage = tuple[str, str, str]
"""doc_id, title and text."""


@dataclass(frozen=True, kw_only=True)
class DocumentPiece(Piece):
    """A document; its records are its passages, and a fault for each row that gives none, or for the file."""

    source: DocumentFile
    passage_words: int

    def records(self) -> Iterator[tuple[int, Passage | Unreadable]]:
        is_empty = True
        try:
            for document in KINDS[ending(self.file)].read(self.source):
                if isinstance(document, Unreadable):
                    rows: Iterator[tuple[int, Passage | Unreadable]] = iter([(document.line, document)])
                else:
                    rows = self._passages(document)
                for row in rows:
                    is_empty = False
                    yield row
            if is_empty:
                raise Unreadable(NO_TEXT)
        except Unreadable as error:
            yield 0, error
        except (OSError, RecursionError) as error:
            yield 0, Unreadable(DAMAGED, reason(error))

    def _passages(self, document: ParsedDocument) -> Iterator[tuple[int, Passage]]:
        untitled = _stem(self.file) if document.row is None else ""
        passages = cut_passages(document.blocks, document.title, self.passage_words, untitled=untitled)
        first = list(islice(passages, 2))
        whole = document.row is not None and len(first) == 1
        for number, passage in enumerate(chain(first, passages), start=1):
            doc_id = passage_id(self.file, None if whole else passage, document.row)
            yield document.row or number, (doc_id, passage.title, passage.text)

    def quote(self, record: Passage) -> str:
        return record[2]


def _stem(file: str) -> str:
    """A file's name as a title: without its ending, with blanks for `_` and `-`."""
    name = file.rsplit("/", 1)[-1]
    return " ".join(name[: -len(ending(name))].replace("_", " ").replace("-", " ").split())


CUTTING_VERSION = 1
"""Raised whenever a document is read or cut into other passages."""

PARSERS = ("charset-normalizer", "markdown-it-py", "lxml", "pypdf")


def open_documents(config: CorpusConfig) -> CorpusPieces:
    """The documents in the order of their paths.

    Raises:
        UserError: if there is none, naming what is there instead, or a package is missing that some of them need.
    """
    folder = Place.named(config.place)
    if not folder.exists():
        raise UserError(f"there is no folder or file {folder}; wanted are {LAYOUT}")
    left_out: dict[str, int] = {}
    if folder.is_folder():
        sizes, left_out = list_documents(folder)
        places = {file: folder / file for file in sizes}
    else:
        name = folder.base.rsplit("/", 1)[-1]
        if ending(name) not in KINDS:
            raise UserError(f"{folder} is no document by its name; read are {', '.join(KINDS)}")
        sizes, places = {name: folder.size()}, {name: folder}
    for file in sizes:
        if (package := KINDS[ending(file)].package) and find_spec(package) is None:
            raise UserError(
                f"{folder}: {file} needs the package {package}, which is not installed; type: "
                f"{how_to_install('documents')}"
            )
    docs = [
        DocumentPiece(
            rows="docs",
            file=file,
            size=size,
            max_characters=config.max_characters,
            source=DocumentFile(file, places[file], config.text_column, config.title_column),
            passage_words=config.passage_words,
        )
        for file, size in sizes.items()
    ]
    return CorpusPieces(docs, left_out=left_out)


def documents_identity(config: CorpusConfig) -> dict[str, Any]:
    """Files count by name and contents, as do the rules of cutting and the parsers' versions. Files that are no
    documents do not count: their number in the result is that of the first reading.
    """
    sources = [piece.source for piece in open_documents(config).docs if isinstance(piece, DocumentPiece)]
    versions = {end: KINDS[end].version for source in sources if KINDS[end := ending(source.name)].version > 1}
    return {
        "cutting": CUTTING_VERSION,
        "passage_words": config.passage_words,
        "columns": [config.text_column, config.title_column],
        "libraries": library_versions(PARSERS) | splitter(),
        "files": {source.name: _digest(source.place) for source in sources},
        **({"versions": versions} if versions else {}),
    }


def _digest(file: Place) -> str:
    """The first 16 digits of a file's SHA-256, or what prevents its reading."""
    try:
        return file.digest()
    except OSError as error:
        return reason(error)


READER = Reader(LAYOUT, open_documents, documents_identity)
