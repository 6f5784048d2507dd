"""Recognises the format of a folder: the one whose reader can open it."""

from midmask.artifact import Place
from midmask.corpora.config import CorpusConfig
from midmask.corpora.docs import count_documents
from midmask.corpora.documents.kinds import ending
from midmask.corpora.formats import FORMATS
from midmask.corpora.reader import reader_of
from midmask.errors import UserError

FALLBACKS = ("texts", "docs")
"""Their readers open any folder with jsonl files, or with documents, so each counts only where none before it does."""


WRITTEN = frozenset({".md", ".rst", ".html", ".htm", ".pdf"})
"""Endings of files that are documents of their own: a folder docs/ of these is no collection of TREC."""


def recognise(folder: str) -> str:
    """`FORMAT:folder` for a folder (or URI) that one format's reader opens; only names and first lines are read.

    Raises:
        UserError: if no reader opens the folder, or several do, naming the choices.
    """
    folders = [name for name, one in FORMATS.items() if one.place == "FOLDER"]
    found = [name for name in folders if _can_open(f"{name}:{folder}")]
    specific = [name for name in found if name not in FALLBACKS]
    if specific or not _are_mostly_documents(folder, found):
        found = specific or found[:1]
    if len(found) == 1:
        return f"{found[0]}:{folder}"
    choices = ", ".join(f"{name}:{folder}" for name in found or folders)
    if not found:
        raise UserError(f"{folder}: no format is recognised in it; name one, to see what is missing: {choices}")
    raise UserError(f"{folder}: it can be read in {len(found)} formats; name one of {choices}")


def _are_mostly_documents(folder: str, found: list[str]) -> bool:
    """Whether a folder that can be read as texts and as documents has more documents than files of texts, so that
    nobody but the user knows what it is.
    """
    if tuple(found) != FALLBACKS:
        return False
    counts = count_documents(Place.named(folder))
    return sum(counts.values()) > 2 * counts.get(".jsonl", 0)


def _can_open(name: str) -> bool:
    config = CorpusConfig(name=name)
    try:
        pieces = reader_of(config.format).open(config).docs
    except (UserError, UnicodeDecodeError):  # names that are no UTF-8, which only documents may have
        return False
    return config.format in FALLBACKS or not any(ending(piece.file) in WRITTEN for piece in pieces)
