"""What a format's reader offers, what can be asked of a corpus of any format, and which format a folder has."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from midmask.corpora.config import FORMATS, CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.opening import UnusableFile
from midmask.errors import UserError
from midmask.store.place import Place

READER_VERSION = 2
"""Raised whenever a reader gives other rows for the same source."""


@dataclass(frozen=True)
class Reader:
    """Reads one format: `READER` of its module. Its functions raise UserError, which names the missing file, folder,
    column or package and the layout wanted.

    layout: what a collection of this format consists of, in one line, for errors and the guide.
    open: config -> the corpus's parts; only names of files and first lines are read.
    identity: config -> what decides the rows besides the config's own fields, as plain data.
    """

    layout: str
    open: Callable[[CorpusConfig], CorpusPieces]
    identity: Callable[[CorpusConfig], dict[str, Any]]


def folder_reader(layout: str, open_folder: Callable[[Place], CorpusPieces]) -> Reader:
    """Reads a format whose collections are folders: files count by name and contents, not by where they lie.

    Args:
        open_folder: folder -> the corpus's parts, or UserError; the longest passage is set here.
    """

    def open_named(config: CorpusConfig) -> CorpusPieces:
        folder = Place.named(config.place)
        if folder.exists() and not folder.is_folder():
            raise UserError(
                f"corpus {config.name}: {folder} is a file; wanted is a folder with {layout}. To read a single "
                f"document, write docs:{config.place}"
            )
        return open_folder(folder).limited_to(config.max_characters)

    def identity(config: CorpusConfig) -> dict[str, Any]:
        corpus, folder = open_named(config), Place.named(config.place)
        files = dict.fromkeys(piece.file for piece in (*corpus.docs, *corpus.queries, *corpus.qrels))
        return {"files": {file: (folder / file).digest() for file in files}}

    return Reader(layout, open_named, identity)


def reader_of(name: str) -> Reader:
    """The reader of a format in `FORMATS`; imports its module."""
    reader: Reader = import_module(f"midmask.corpora.{name}").READER
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


def recognise(folder: str) -> str:
    """`FORMAT:folder` for a folder (or URI), of the first format whose reader opens it: `texts` and `docs`, whose
    readers open almost any folder, stand last in the table. Only names and first lines are read.

    Raises:
        UserError: if no reader opens the folder, naming the choices.
    """
    names = [f"{name}:{folder}" for name, place in FORMATS.items() if place == "FOLDER"]
    for name in names:
        try:
            open_corpus(CorpusConfig(name=name))
        except UnusableFile:  # its layout, with a file that its reader refuses by name
            return name
        except UserError:
            continue
        return name
    raise UserError(
        f"{folder}: no format is recognised in it; name one, to see what is missing: {', '.join(names)}; or, of a "
        "published collection, ir_datasets:ID"
    )
