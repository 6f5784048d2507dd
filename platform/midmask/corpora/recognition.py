"""Recognises the format of a folder: the one whose reader can open it."""

from midmask.corpora.config import CorpusConfig
from midmask.corpora.formats import FORMATS
from midmask.errors import UserError

FALLBACK = "texts"
"""Its reader opens any folder with jsonl files, so it counts only where no other does."""


def recognise(folder: str) -> str:
    """`FORMAT:folder` for a folder (or URI) that one format's reader opens; only names and first lines are read.

    Raises:
        UserError: if no reader opens the folder, or several do, naming the choices.
    """
    folders = [name for name, one in FORMATS.items() if one.place == "FOLDER"]
    found = [name for name in folders if _can_open(f"{name}:{folder}")]
    if len(found) > 1 and FALLBACK in found:
        found.remove(FALLBACK)
    if len(found) == 1:
        return f"{found[0]}:{folder}"
    choices = ", ".join(f"{name}:{folder}" for name in found or folders)
    if not found:
        raise UserError(f"{folder}: no format is recognised in it; name one, to see what is missing: {choices}")
    raise UserError(f"{folder}: it can be read in {len(found)} formats; name one of {choices}")


def _can_open(name: str) -> bool:
    config = CorpusConfig(name=name)
    try:
        FORMATS[config.format].reader().open(config)
    except UserError:
        return False
    return True
