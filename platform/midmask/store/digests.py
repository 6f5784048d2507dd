"""Sizes and SHA-256 of an artifact's files: measured before its record is written, checked when they are read.

Sizes are checked whenever an artifact is loaded, contents when a process fetches a file from elsewhere for the first
time. Files of this machine's disk are read as they are; their digests are in the record.
"""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midmask.errors import UserError
from midmask.store.place import DRAFT, IN_MEMORY, Place

RECORD = "record.json"
READERS = 4

Files = Mapping[str, Mapping[str, Any]]
"""Relative path -> {"size": bytes, "sha256": hexadecimal digits}."""

_stated: dict[str, Files] = {}  # of the artifacts that this process has met, by place
_intact: set[tuple[str, str]] = set()  # (file, SHA-256) that this process has checked


@dataclass(frozen=True)
class Digests:
    """The digests of the files below `folder`, a URI, in the record of the artifact at `artifact`. Small, so that it
    can be sent to workers.
    """

    artifact: Place
    folder: Place

    def check(self, file: Place) -> bytes | None:
        """Raises UserError if the file's contents are not those that the record states; unlisted files pass.

        Returns:
            The contents of a remote file that was read for it and is not large, so that it is not fetched twice.
        """
        stated = self._files().get(file.base[len(self.folder.base) :].lstrip("/"))
        if stated is None:
            return None
        bare, held = Place(file.uri), None
        if stated["size"] <= IN_MEMORY and (file.uri, stated["sha256"]) not in _intact:
            with suppress(FileNotFoundError):
                held = bare.read()
        self._compare(file, stated["sha256"], bare, held)
        return held

    def check_below(self, folder: Place, copy: Path) -> None:
        """Raises UserError if a file of the folder, or the folder itself if it is a file, is damaged in `copy`."""
        inside = folder.base[len(self.folder.base) :].strip("/")
        for name, stated in self._files().items():
            if name == inside or not inside or name.startswith(f"{inside}/"):
                below = name[len(inside) :].lstrip("/")
                self._compare(self.folder / name, stated["sha256"], Place(str(copy / below if below else copy)))

    def _files(self) -> Files:
        if self.artifact.uri not in _stated:
            remember(self.artifact, read_record(self.artifact))
        return _stated[self.artifact.uri]

    def _compare(self, file: Place, sha256: str, copy: Place, held: bytes | None = None) -> None:
        """Raises UserError if `copy`, the file itself or the local copy of a remote one, has another digest; `held` are
        its contents, if they were read."""
        if (copy.uri, sha256) in _intact:
            return
        try:
            actual = copy.sha256() if held is None else hashlib.sha256(held).hexdigest()
        except FileNotFoundError:
            actual = "missing"
        if actual != sha256:
            only_copy = copy != file and file.sha256() == sha256
            damaged, folder = (copy, os.path.dirname(copy.uri)) if only_copy else (file, self.artifact.uri)
            change = "it is missing" if actual == "missing" else "its contents have changed since it was written"
            raise UserError(f"{damaged} is damaged: {change}. Delete {folder} and run the same command again.")
        _intact.add((copy.uri, sha256))


def read_record(place: Place) -> dict[str, Any]:
    """The record of the artifact at `place`.

    Raises:
        UserError: if there is none, so nothing finished here, or it is damaged.
    """
    try:
        record: dict[str, Any] = (place / RECORD).read_json()
        record["fingerprint"]
    except FileNotFoundError:
        raise UserError(
            f"{place} is no finished artifact: {RECORD} is missing. Name a folder that a midmask step has written."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{place / RECORD} is damaged: it is no whole record. Delete {place} and run the same command again."
        ) from None
    return record


def remember(artifact: Place, record: Mapping[str, Any]) -> None:
    """Keeps the digests in the artifact's record for this process; none for an artifact of an older midmask."""
    _stated[artifact.uri] = record.get("files", {})


def measure(folder: Place) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file below the folder, by relative path; drafts of killed processes are left out."""
    sizes = {name: size for name, size in folder.sizes().items() if not name.endswith(DRAFT)}
    with ThreadPoolExecutor(READERS) as readers:
        digests = list(readers.map(lambda name: (folder / name).sha256(), sizes))
    return {name: {"size": size, "sha256": digest} for (name, size), digest in zip(sizes.items(), digests, strict=True)}


def check_sizes(artifact: Place, folder: Place, files: Files) -> None:
    """Raises UserError, naming the first one, if a file is missing or has another size than the record states."""
    sizes = folder.sizes() if files else {}
    for name, stated in files.items():
        if sizes.get(name) != stated["size"]:
            fault = f"it has {sizes[name]:,} bytes of {stated['size']:,}" if name in sizes else "it is missing"
            raise UserError(f"{folder / name} is damaged: {fault}. Delete {artifact} and run the same command again.")
