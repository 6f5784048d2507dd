"""Lists the contents of a store; finds and deletes what nobody needs.

All files of a store are listed once; then every record is read. A file that belongs to neither an artifact nor an
attempt, such as a sweep's `optuna.db`, is not listed. Links to folders are followed, so that all records are found, and
what lies behind them is marked as linked.

The artifacts that tracked runs and registered models name are needed, and all artifacts that these were made from.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.fs

from midmask.core.config import fingerprints_in
from midmask.core.redaction import redacted
from midmask.errors import UserError
from midmask.experiment.kinds import KINDS
from midmask.store.artifact import ATTEMPTS, FILLING, RECORD, read_record
from midmask.store.leases import LEASE, LeaseWatch, Timing
from midmask.store.place import CLOSED, Place, refusing

if TYPE_CHECKING:
    from midmask.tracking.reading import References

READERS = 8
REMOVED = "removed-"
"""Beginning of the name of a folder that is being deleted; jobs take it for no attempt."""

SILENT_S = 86400.0
"""Seconds after which an unchanged lease is dead, however much clocks differ."""

_OF_PATH = re.compile(rf"([^/]+/.+?{re.escape(ATTEMPTS)}/[^/]+?)({re.escape(LEASE)}[^/]*)?(/.*)?")
_OF_URI = re.compile(rf"([^/]+/.+?/\d{{4,}}-[0-9a-f]{{8}})({re.escape(LEASE)}[^/]*)?(/.*)?")
"""Addresses of attempts at the beginning of their files' names, and of their leases'."""


class StoredFile(NamedTuple):
    """A file below a store."""

    name: str  # path below the store
    size: int
    changed: float  # seconds since 1970
    is_linked: bool = False  # whether it lies behind a link


@dataclass(frozen=True)
class Stored:
    """A finished artifact, or an attempt at one."""

    address: str  # of its folder below the store, such as `pretrain/0123456789abcdef`
    size: int
    changed: float  # when the record, or the newest file of an attempt, was written; seconds since 1970
    names: frozenset[str] = frozenset()  # fingerprints of other artifacts in its record
    attempt_name: str = ""  # on an object store, the name of the attempt that holds the artifact's files
    is_attempt: bool = False
    may_live: bool = False  # whether the process that makes it may be alive
    is_held: bool = False  # whether it has to stay: it lies behind a link, or its record cannot be read

    @property
    def step(self) -> str:
        return self.address.split("/")[0]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the artifact."""
        return self.address.split("/")[1].removesuffix(ATTEMPTS)


def read_contents(storage: Place, now: float) -> list[Stored]:
    """The finished artifacts and the attempts in a store.

    Args:
        now: seconds since 1970.
    """
    in_attempt = _OF_PATH if storage.is_path else _OF_URI
    attempts: dict[str, list[StoredFile]] = {}
    others: list[StoredFile] = []
    for file in files_below(storage):
        match = in_attempt.fullmatch(file.name)
        attempts.setdefault(match[1], []).append(file) if match else others.append(file)
    artifacts = _files_of_artifacts(others)
    with ThreadPoolExecutor(READERS) as readers:
        records = list(readers.map(lambda address: _try_record(storage / address), artifacts))
    contents = []
    for (address, files), record in zip(artifacts.items(), records, strict=True):
        attempt = (record or {}).get("attempt", "")
        inside = [f"{address}/{attempt}"] if record else [name for name in attempts if name.startswith(f"{address}/")]
        inner = [file for name in inside for file in attempts.pop(name, [])]
        contents.append(_artifact(address, [*files, *inner], record, attempt))
    return contents + [_attempt(storage, address, files, now) for address, files in sorted(attempts.items())]


def _files_of_artifacts(files: Sequence[StoredFile]) -> dict[str, list[StoredFile]]:
    """Address -> files of every folder with a record; a record inside of such a folder is one of its files."""
    folders = {str(PurePosixPath(file.name).parent) for file in files if PurePosixPath(file.name).name == RECORD}
    by_folder: dict[str, list[StoredFile]] = {}
    for file in files:
        above = [str(folder) for folder in PurePosixPath(file.name).parents[:-2] if str(folder) in folders]
        if above:
            by_folder.setdefault(above[-1], []).append(file)
    return by_folder


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


def _try_record(place: Place) -> dict[str, Any] | None:
    """The record, without its list of files; None if it cannot be read."""
    try:
        return {name: value for name, value in read_record(place).items() if name != "files"}
    except (UserError, OSError):
        return None


def _artifact(address: str, files: list[StoredFile], record: Mapping[str, Any] | None, attempt: str) -> Stored:
    return Stored(
        address,
        size=sum(file.size for file in files),
        changed=max((file.changed for file in files if file.name == f"{address}/{RECORD}"), default=0.0),
        names=frozenset(fingerprints_in(json.dumps(record)) - {address.split("/")[1]}),
        attempt_name=attempt,
        is_held=record is None or any(file.is_linked for file in files),
    )


def _attempt(storage: Place, address: str, files: list[StoredFile], now: float) -> Stored:
    leases = [file for file in files if file.name == f"{address}{LEASE}" and file.changed > now - SILENT_S]
    may_live = bool(leases) and not LeaseWatch(Timing()).is_surely_dead(storage / f"{address}{LEASE}")
    return Stored(
        address,
        size=sum(file.size for file in files),
        changed=max(file.changed for file in files),
        is_attempt=True,
        may_live=may_live,
        is_held=any(file.is_linked for file in files),
    )


INTERMEDIATE = {kind.name for kind in KINDS.values() if kind.intermediate}


@dataclass(frozen=True)
class Sorted:
    """The artifacts and attempts of a store, by whether they are needed."""

    needed: list[Stored] = field(default_factory=list)  # by a run or a registered model
    kept: list[Stored] = field(default_factory=list)  # not needed, but too young, held, or in a store where a job runs
    unneeded: list[Stored] = field(default_factory=list)  # can be deleted
    running: bool = False  # whether a job runs, so that artifacts are not deleted now


def sort_contents(
    contents: Sequence[Stored], tracked: "References", before: float, *, intermediates: bool = False
) -> Sorted:
    """Sorts the contents of a store by whether they are needed.

    Args:
        before: seconds since 1970; what has changed since is kept.
        intermediates: whether intermediates of finished results are not needed either.
    """
    needed = needed_fingerprints(contents, tracked.named)
    searched = {name for item in contents for name in item.names if item.fingerprint in needed}
    running = bool(tracked.running) or any(item.may_live for item in contents)
    by_need = Sorted(running=running)
    for item in contents:
        stays = item.is_held or item.changed > before or (item.may_live if item.is_attempt else running)
        is_spare = intermediates and item.step in INTERMEDIATE and item.fingerprint in searched
        is_needed = item.fingerprint in needed and not item.is_attempt and (stays or not is_spare)
        (by_need.needed if is_needed else by_need.kept if stays else by_need.unneeded).append(item)
    return by_need


def needed_fingerprints(contents: Iterable[Stored], named: Iterable[str]) -> set[str]:
    """Fingerprints of the artifacts that are named, or that these were made from."""
    inputs: dict[str, set[str]] = {}
    for item in contents:
        inputs.setdefault(item.fingerprint, set()).update(item.names)
    needed, waiting = set(named), list(named)
    while waiting:
        new = inputs.get(waiting.pop(), set()) - needed
        needed |= new
        waiting += new
    return needed & inputs.keys()


def refuse_strangers(storage: Place, contents: Sequence[Stored], tracked: "References", uris: Iterable[str]) -> None:
    """Raises UserError if no tracked run names an artifact in this store, so that all would look unneeded."""
    artifacts = sum(not item.is_attempt for item in contents)
    if not artifacts or _real_place(storage.uri) in map(_real_place, tracked.storages):
        return
    others = ", ".join(sorted(redacted(uri) for uri in tracked.storages)[:3])
    raise UserError(
        f"none of the {tracked.runs:,} runs tracked in {', '.join(map(redacted, uris))} names an artifact of "
        f"{redacted(storage.uri)}, so all its {artifacts:,} artifacts would look unneeded"
        f"{f' (these runs name {others})' if others else ''}. Nothing was deleted. Give the --storage and the "
        "--tracking-uri of the jobs that filled the store, as they were given to the jobs."
    )


def _real_place(uri: str) -> str:
    base = Place(uri).base.rstrip("/")
    return os.path.realpath(base) if "://" not in base else base


def delete(storage: Place, item: Stored) -> None:
    """Deletes an artifact or an attempt. At no moment does a part of it look whole, or like the start of an attempt
    that a job could go on from; so this may be killed at any time.

    Raises:
        UserError: if the store is read-only or closed to this user.
    """
    with refusing(str(storage / item.address), CLOSED):
        if storage.is_path:
            _move_and_delete(storage, item)
        else:
            _mark_and_delete(storage, item)


def _move_and_delete(storage: Place, item: Stored) -> None:
    """On a disk: renames the folder to a name that no job looks for; only then are its files deleted."""
    source = (storage / item.address).uri
    attempts = os.path.dirname(source) if item.is_attempt else f"{source}{ATTEMPTS}"
    if not os.path.basename(source).startswith(REMOVED):
        os.makedirs(attempts, exist_ok=True)
        target = os.path.join(attempts, f"{REMOVED}{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):  # an attempt may have left its lease alone
            os.rename(source, target)
            source = target
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(source)
    (storage / f"{item.address}{LEASE}").delete()
    with contextlib.suppress(OSError):
        os.rmdir(attempts)  # unless other attempts lie there


def _mark_and_delete(storage: Place, item: Stored) -> None:
    """On an object store: the record goes first. A mark in the folder of the files, which goes last, keeps jobs from
    taking them over.
    """
    files = storage / item.address / item.attempt_name if item.attempt_name else storage / item.address
    (files / FILLING).write(b"")
    (storage / item.address / RECORD).delete()
    (files / RECORD).delete()
    for file in files_below(files):
        if file.name != FILLING and not file.is_linked:
            (files / file.name).delete()
    files.delete()
    (storage / f"{item.address}{LEASE}").delete()
    if item.attempt_name and not (storage / item.address).names():
        (storage / item.address).delete()
