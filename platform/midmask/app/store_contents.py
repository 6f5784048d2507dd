"""What lies in a store: finished artifacts, with what their records name, and attempts, which no record has made
visible.

All files are listed once; then every record is read. A file that belongs to neither, such as a sweep's `optuna.db`, is
not listed. Links to folders are followed, so that all records are found, and what lies behind them is marked as linked.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs

from midmask.artifact import RECORD, Place
from midmask.attempts import ATTEMPTS, FILLING
from midmask.digests import read_record
from midmask.errors import UserError
from midmask.identity import fingerprints_in
from midmask.leases import LEASE, LeaseWatch, Timing

READERS = 8
REMOVED = "removed-"
"""Beginning of the name of a folder that is being deleted; jobs take it for no attempt."""

SILENT_S = 86400.0
"""Seconds after which an unchanged lease is dead, however much clocks differ."""

_ATTEMPT = re.compile(r"\d{4,}-[0-9a-f]{8}")


@dataclass(frozen=True)
class StoredFile:
    """name: path below the store. changed: seconds since 1970. is_linked: whether it lies behind a link."""

    name: str
    size: int
    changed: float
    is_linked: bool = False


@dataclass(frozen=True)
class Stored:
    """A finished artifact, or an attempt at one.

    address: of its folder below the store, such as `pretrain/0123456789abcdef`. fingerprint: of the artifact. names:
    fingerprints of other artifacts in its record. changed: when the record, or the newest file of an attempt, was
    written, in seconds since 1970. own_attempt: on an object store, the name of the attempt that holds its files.
    is_attempt: whether it is an attempt. may_live: whether the process that makes it may be alive. is_held: whether it
    has to stay because it lies behind a link or its record cannot be read. is_marked: whether no job would go on from
    the attempt, since it was being filled or deleted when its process ended.
    """

    address: str
    fingerprint: str
    size: int
    changed: float
    names: frozenset[str] = frozenset()
    own_attempt: str = ""
    is_attempt: bool = False
    may_live: bool = False
    is_held: bool = False
    is_marked: bool = False

    @property
    def step(self) -> str:
        return self.address.split("/")[0]


@dataclass(frozen=True)
class StoreContents:
    """The finished artifacts and the attempts in a store."""

    artifacts: tuple[Stored, ...]
    attempts: tuple[Stored, ...]


def read_contents(storage: Place, now: float) -> StoreContents:
    """Lists a store and reads its records.

    Args:
        now: seconds since 1970.
    """
    in_attempts: dict[str, list[StoredFile]] = {}
    others: list[StoredFile] = []
    for file in files_below(storage):
        attempt = _attempt_of(file.name, storage)
        in_attempts.setdefault(attempt, []).append(file) if attempt else others.append(file)
    files = _files_of_artifacts(others)
    with ThreadPoolExecutor(READERS) as readers:
        records = dict(zip(files, readers.map(lambda one: _try_record(storage / one), files), strict=True))
    artifacts = []
    for address, own in files.items():
        record = records[address]
        attempt = (record or {}).get("attempt", "")
        inside = [f"{address}/{attempt}"] if record else [one for one in in_attempts if one.startswith(f"{address}/")]
        inner = [file for one in inside for file in in_attempts.pop(one, [])]
        artifacts.append(_artifact(address, [*own, *inner], record, attempt))
    attempts = [_attempt(storage, address, own, now) for address, own in sorted(in_attempts.items())]
    return StoreContents(tuple(artifacts), tuple(attempts))


def files_below(place: Place) -> Iterator[StoredFile]:
    """Every file below a folder; nothing if it does not exist."""
    filesystem, path = place.filesystem()
    if filesystem.type_name == "local":
        yield from _walk(Path(path), "", is_linked=False, above=frozenset())
        return
    for info in filesystem.get_file_info(pyarrow.fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if info.type == pyarrow.fs.FileType.File:
            yield StoredFile(info.path[len(path) :].lstrip("/"), int(info.size or 0), (info.mtime_ns or 0) / 1e9)


def _walk(folder: Path, prefix: str, *, is_linked: bool, above: frozenset[str]) -> Iterator[StoredFile]:
    """above: the real paths of the folders above, so that a link to one of them is not followed."""
    real = os.path.realpath(folder)
    if real in above or not folder.is_dir():
        return
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        linked = is_linked or item.is_symlink()
        try:
            if item.is_dir():
                yield from _walk(folder / item.name, f"{prefix}{item.name}/", is_linked=linked, above=above | {real})
            elif item.is_file():
                facts = item.stat()
                yield StoredFile(prefix + item.name, facts.st_size, facts.st_mtime, linked)
        except FileNotFoundError:  # deleted meanwhile
            continue


def _attempt_of(name: str, storage: Place) -> str:
    """The address of the attempt that a file belongs to, or is the lease of; empty if there is none."""
    parts = name.split("/")
    for at in range(2, len(parts)):
        own = parts[at].partition(LEASE)[0]
        if parts[at - 1].endswith(ATTEMPTS) if storage.is_path else _ATTEMPT.fullmatch(own):
            return "/".join([*parts[:at], own])
    return ""


def _files_of_artifacts(files: Iterable[StoredFile]) -> dict[str, list[StoredFile]]:
    """Address -> files of every folder with a record; a record inside of such a folder is one of its files."""
    by_name = {file.name: file for file in files}
    found: dict[str, list[StoredFile]] = {}
    for name in sorted(by_name, key=lambda name: name.count("/")):
        folder, _, last = name.rpartition("/")
        if last == RECORD and "/" in folder and not any(above in found for above in _folders_above(folder)):
            found[folder] = []
    for name, file in by_name.items():
        if owner := next((above for above in _folders_above(name) if above in found), None):
            found[owner].append(file)
    return found


def _folders_above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _try_record(place: Place) -> dict[str, Any] | None:
    """The record, without its list of files; None if it cannot be read."""
    try:
        return {name: value for name, value in read_record(place).items() if name != "files"}
    except (UserError, OSError):
        return None


def _artifact(address: str, files: list[StoredFile], record: dict[str, Any] | None, attempt: str) -> Stored:
    fingerprint = address.split("/")[1]
    return Stored(
        address,
        fingerprint,
        size=sum(file.size for file in files),
        changed=max((file.changed for file in files if file.name == f"{address}/{RECORD}"), default=0.0),
        names=frozenset(fingerprints_in(json.dumps(record)) - {fingerprint}),
        own_attempt=attempt,
        is_held=record is None or any(file.is_linked for file in files),
    )


def _attempt(storage: Place, address: str, files: list[StoredFile], now: float) -> Stored:
    folder, _, name = address.rpartition("/")
    leases = [file for file in files if file.name == f"{address}{LEASE}" and file.changed > now - SILENT_S]
    may_live = bool(leases) and not LeaseWatch(Timing()).is_surely_dead(storage / f"{address}{LEASE}")
    return Stored(
        address,
        fingerprint=folder.split("/")[1].removesuffix(ATTEMPTS),
        size=sum(file.size for file in files),
        changed=max(file.changed for file in files),
        is_attempt=True,
        may_live=may_live,
        is_held=any(file.is_linked for file in files),
        is_marked=name.startswith(REMOVED) or any(file.name == f"{address}/{FILLING}" for file in files),
    )
