"""The files of a folder at every depth: documents by kind, and what is left out, counted."""

import os
from collections import Counter
from dataclasses import dataclass, field

from midmask.artifact import Place
from midmask.corpora.documents.kinds import KINDS, ending
from midmask.corpora.strays import is_leftover

HIDDEN, NO_ENDING, SPECIAL = "hidden", "without ending", "no regular file"


@dataclass
class Listing:
    """files: path below the folder -> bytes, in the order of the paths. left_out: ending (or "hidden") -> number of
    files that are no documents; a hidden folder counts as one. closed: (folder or file, reason) that cannot be listed.
    alone: name of the only file, where the place is one; its path is "".
    """

    files: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    closed: list[tuple[str, str]] = field(default_factory=list)
    alone: str = ""

    def add(self, path: str, size: int) -> None:
        """Takes a file in, or counts it as left out."""
        end = ending(path)
        if any(is_leftover(part) for part in path.split("/")):
            self.left_out[HIDDEN] += 1
        elif end in KINDS:
            self.files[path] = size
        else:
            self.left_out[end or NO_ENDING] += 1

    def endings(self) -> Counter[str]:
        """Number of documents' files by ending."""
        return Counter(ending(path or self.alone) for path in self.files)


def list_documents(folder: Place) -> Listing:
    """The files below a folder. Links are followed; each folder is entered once, so that loops end."""
    listing = Listing()
    if folder.is_path:
        _walk(folder.uri, listing)
    else:
        for path, size in folder.sizes().items():
            listing.add(path, size)
    listing.files = dict(sorted(listing.files.items()))
    return listing


def _walk(root: str, listing: Listing) -> None:
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        path = os.path.join(root, inside) if inside else root
        try:
            facts = os.stat(path)
            if (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            entries = sorted(os.listdir(path))
        except OSError as error:
            listing.closed.append((inside, error.strerror or type(error).__name__))
            continue
        folders = []
        for name in entries:
            own = f"{inside}/{name}" if inside else name
            if folder := _take_entry(os.path.join(path, name), own, listing):
                folders.append(folder)
        waiting += reversed(folders)


def _take_entry(path: str, own: str, listing: Listing) -> str:
    """Adds a file to the listing; gives the name of a folder to enter, else ""."""
    try:
        facts = os.stat(path)
    except OSError as error:
        listing.closed.append((own, error.strerror or type(error).__name__))
        return ""
    if os.path.isdir(path):
        if not is_leftover(own.rsplit("/", 1)[-1]):
            return own
        listing.left_out[HIDDEN] += 1
    elif os.path.isfile(path):
        listing.add(own, facts.st_size)
    else:
        listing.left_out[SPECIAL] += 1
    return ""


def showing(counts: Counter[str]) -> str:
    """Counts as text: `.png 12, .py 3`, the most frequent first."""
    return ", ".join(f"{name} {number:,}" for name, number in counts.most_common(20))
