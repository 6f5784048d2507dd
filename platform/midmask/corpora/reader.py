"""What a format's reader offers, what can be asked of a corpus of any format, and which format a folder has."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

from midmask.corpora.chunks import numbered
from midmask.corpora.config import FORMATS, CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.docs import list_documents
from midmask.corpora.documents import ending
from midmask.corpora.opening import UnusableFile
from midmask.errors import UserError
from midmask.store.place import Place

READER_VERSION = 2
"""Raised whenever a reader gives other rows for the same source."""


class Reader(Protocol):
    """Reads one format: `READER` of its module. Its methods raise UserError, which names the missing file, folder,
    column or package and the layout wanted.

    layout: what a collection of this format consists of, in one line, for errors and the guide.
    """

    @property
    def layout(self) -> str: ...
    def open(self, config: CorpusConfig) -> CorpusPieces:
        """The corpus's parts; only names of files and first lines are read."""

    def identity(self, config: CorpusConfig) -> dict[str, Any]:
        """What decides the rows besides the config's own fields, as plain data."""


@dataclass(frozen=True)
class FolderReader:
    """Reads a format whose collections are folders: files count by name and contents, not by where they lie.

    open_folder: folder -> the corpus's parts, or UserError; their numbers and the longest passage are set here.
    """

    layout: str
    open_folder: Callable[[Place], CorpusPieces]

    def open(self, config: CorpusConfig) -> CorpusPieces:
        folder = Place.named(config.place)
        if folder.exists() and not folder.is_folder():
            raise UserError(
                f"corpus {config.name}: {folder} is a file; wanted is a folder with {self.layout}. To read a single "
                f"document, write docs:{config.place}"
            )
        corpus = self.open_folder(folder)
        parts: dict[str, Any] = {
            rows: numbered(getattr(corpus, rows), config.max_characters) for rows in ("docs", "queries", "qrels")
        }
        return replace(corpus, **parts)

    def identity(self, config: CorpusConfig) -> dict[str, Any]:
        folder = Place.named(config.place)
        return {"files": {file: (folder / file).digest() for file in self.open(config).files()}}


def reader_of(name: str) -> Reader:
    """The reader of a format in `FORMATS`; imports its module."""
    reader: Reader = import_module(f"midmask.corpora.{FORMATS[name].module}").READER
    return reader


def open_corpus(config: CorpusConfig) -> CorpusPieces:
    """The corpus's parts; see `Reader.open`."""
    return reader_of(config.format).open(config)


def judged_splits(config: CorpusConfig) -> list[str]:
    """Names of the splits that a prepared collection has, from its files' names; sorted, [] without judgements.

    Raises:
        UserError: as `open_corpus`.
    """
    if config.format == "pydocs":
        return ["dev", "test", "train"]
    corpus = open_corpus(config)
    names = {piece.split for piece in (*corpus.qrels, *corpus.queries) if piece.split}
    if names and config.splits == "complete" and not corpus.unions:
        names |= {"train", "dev", "test"}
    return sorted(names | corpus.unions.keys())


def corpus_identity(config: CorpusConfig) -> dict[str, Any]:
    """All that decides the artifact's bytes, as plain data: the caller fingerprints this in place of the config.

    The short name counts, since results are named by it; of the place only what the format's reader states counts
    (`Reader.identity`).

    Raises:
        UserError: as `open_corpus`.
    """
    return {
        "reader": READER_VERSION,
        "name": config.short_name,
        "format": config.format,
        "max_passages": config.max_passages,
        "max_characters": config.max_characters,
        "splits": config.splits,
        "self_matches": config.self_matches,
        "split_seed": config.split_seed,
        **reader_of(config.format).identity(config),
    }


FALLBACKS = ("texts", "docs")
"""Their readers open any folder with jsonl files, or with documents, so each counts only where none before it does."""


def recognise(folder: str) -> str:
    """`FORMAT:folder` for a folder (or URI) that one format's reader opens; only names and first lines are read.

    Raises:
        UserError: if no reader opens the folder, or several do, naming the choices.
    """
    folders = [name for name, format_ in FORMATS.items() if format_.place == "FOLDER"]
    found = [name for name in folders if _can_open(f"{name}:{folder}")]
    specific = [name for name in found if name not in FALLBACKS]
    if specific or not _are_mostly_documents(folder, found):
        found = specific or found[:1]
    if len(found) == 1:
        return f"{found[0]}:{folder}"
    choices = ", ".join(f"{name}:{folder}" for name in found or folders)
    if not found:
        raise UserError(
            f"{folder}: no format is recognised in it; name one, to see what is missing: {choices}; or, of a "
            "published collection, ir_datasets:ID"
        )
    raise UserError(f"{folder}: it can be read in {len(found)} formats; name one of {choices}")


def _are_mostly_documents(folder: str, found: list[str]) -> bool:
    """Whether a folder that can be read as texts and as documents has more documents than files of texts, so that
    nobody but the user knows what it is.
    """
    if tuple(found) != FALLBACKS:
        return False
    files = list_documents(Place.named(folder)).files
    return len(files) > 2 * sum(ending(file) == ".jsonl" for file in files)


def _can_open(name: str) -> bool:
    config = CorpusConfig(name=name)
    try:
        reader_of(config.format).open(config)
    except UnusableFile:
        return config.format not in FALLBACKS  # its layout, with a file that its reader refuses by name
    except (UserError, UnicodeDecodeError):  # names that are no UTF-8, which only documents may have
        return False
    return True
