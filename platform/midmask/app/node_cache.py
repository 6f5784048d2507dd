"""This machine's copies of artifacts that lie in remote stores (`Place.local`), and which of them exceed a limit."""

import re
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from midmask.app.store_contents import files_below
from midmask.artifact import Place, cache_folder

IN_USE_S = 86400.0
"""Seconds since its last use in which a copy counts as in use. Files are opened, or mapped into memory, right after
`Place.local` returns, so a process that has them open keeps them even if the copy is deleted.
"""

_COPY = re.compile(r"[0-9a-f]{24}")
_DRAFT = "tmp"
"""Beginning of the names of copies that are being made (`tempfile`) or deleted."""


@dataclass(frozen=True)
class Copy:
    """One copied folder. used: when it was last used, in seconds since 1970."""

    path: Path
    size: int
    used: float

    @property
    def is_draft(self) -> bool:
        """Whether it was being made or deleted when its process ended."""
        return self.path.name.startswith(_DRAFT)


def list_copies() -> list[Copy]:
    """The copies, that used last first; other files in the cache folder are not listed."""
    folder = cache_folder()
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink() and (_COPY.fullmatch(path.name) or path.name.startswith(_DRAFT)):
            size = sum(file.size for file in files_below(Place(str(path))))
            found.append(Copy(path, size, path.stat().st_mtime))
    return sorted(found, key=lambda copy: -copy.used)


def find_excess(copies: Iterable[Copy], limit: float, now: float) -> list[Copy]:
    """The copies that are not in use and do not fit into `limit` bytes after those used more lately; abandoned drafts
    are always among them.

    Args:
        copies: that used last first.
        now: seconds since 1970.
    """
    found, total = [], 0
    for copy in copies:
        total += copy.size
        if now - copy.used > IN_USE_S and (copy.is_draft or total > limit):
            found.append(copy)
            total -= copy.size
    return found


def remove(copy: Copy) -> None:
    """Deletes a copy. It is renamed first: a part of it would be taken for the whole."""
    draft = copy.path.with_name(f"{_DRAFT}-{secrets.token_hex(4)}")
    copy.path.rename(draft)
    shutil.rmtree(draft)
