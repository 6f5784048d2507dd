"""Attempts: each process that makes an artifact writes into a folder of its own, and the first one to finish wins.

    path   STEP/FINGERPRINT.attempts/0001-5f3a/    renamed to STEP/FINGERPRINT/ when the record is in it
    URI    STEP/FINGERPRINT/0001-5f3a/             stays; STEP/FINGERPRINT/record.json names it

Beside each attempt lies its lease, `0001-5f3a.lease`, which names the process and is written again every few seconds.
Another process waits while a lease lives. The attempt of a dead process is taken over: its files become the start of a
new attempt under the next number. They are linked or copied, never written in place, since a process that was only
paused, or workers that outlive their driver, may still write into the old folder.

The record states the size and SHA-256 of every file. Sizes are checked whenever an artifact is loaded, contents when a
process fetches a file from elsewhere for the first time. Files of this machine's disk are read as they are.
"""

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midmask.errors import UserError
from midmask.store.leases import LEASE, LeaseWatch, Timing, lease
from midmask.store.place import DRAFT, IN_MEMORY, Place

log = logging.getLogger(__name__)

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
            with contextlib.suppress(FileNotFoundError):
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
            read_record(self.artifact)
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
    """The record of the artifact at `place`; this process keeps the digests in it, none of an older midmask's artifact.

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
    _stated[place.uri] = record.get("files", {})
    return record


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


ATTEMPTS = ".attempts"
"""End of the name of the folder of attempts, on a disk."""

FILLING = f"filling{DRAFT}"
"""In an attempt's folder while the files of a dead one are copied into it."""


def folder_of_attempts(place: Place) -> Place:
    """The folder of the attempts at an artifact."""
    return Place(f"{place.uri}{ATTEMPTS}") if place.is_path else place


@dataclass(frozen=True)
class Attempt:
    """One process's attempt at an artifact: `out` is the folder to write into."""

    place: Place
    name: str
    watch: LeaseWatch

    @property
    def out(self) -> Place:
        return folder_of_attempts(self.place) / self.name

    def publish(self, record: Mapping[str, Any]) -> None:
        """Makes the files visible as the artifact, with their digests in its record; deletes them if another attempt
        was first. Deletes what dead attempts have left.

        Of two attempts on an object store that end within the same request, the second record replaces the first, since
        pyarrow has no conditional writes (arrow issue 44281). Both are whole, and both are kept.
        """
        whole = {**record, "files": measure(self.out)}
        (self.out / RECORD).write_json(whole)
        won = self._rename() if self.place.is_path else self._name(whole)
        if not won:
            log.info("another process was first to finish %s; this one's files are deleted", self.place)
            self.out.delete()
        _clear(self.place, self.watch, self.name)

    def _rename(self) -> bool:
        for folder, _, _ in os.walk(self.out.uri, topdown=False):
            _sync(folder)
        try:
            os.rename(self.out.uri, self.place.uri)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        _sync(os.path.dirname(self.place.uri))
        return True

    def _name(self, record: Mapping[str, Any]) -> bool:
        if (self.place / RECORD).exists():
            return False
        (self.place / RECORD).write_json({**record, "attempt": self.name})
        return True


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def attempt(place: Place, timing: Timing) -> Iterator[Attempt | None]:
    """Yields a folder in which only this process makes the artifact, with the files that a dead process has left; None
    if another process finishes the artifact first.

    The folder stays when the block ends with an error, so that the next attempt goes on from it.
    """
    if place.is_path and (names := place.names()) and RECORD not in names:
        raise UserError(
            f"{place} holds files but no {RECORD}: an older midmask was interrupted there. Delete it and run the same "
            "command again."
        )
    folder, watch, waits = folder_of_attempts(place), LeaseWatch(timing), False
    while not (place / RECORD).exists():
        if _list_living(folder, watch):
            if not waits:
                log.warning("another process is making %s; waiting for it", place)
            waits = True
            time.sleep(timing.look_s)
            continue
        number = 1 + max((int(other.partition("-")[0]) for other in _attempts(folder)), default=0)
        name = f"{number:04d}-{secrets.token_hex(4)}"
        with lease(folder / f"{name}{LEASE}", timing):
            if any(other < name for other in _list_living(folder, watch)):
                continue  # two began at once: the other one works
            if (place / RECORD).exists():
                continue  # finished since the last look
            _take_over(folder, name, watch)
            yield Attempt(place, name, watch)
            return
    yield None


def _clear(place: Place, watch: LeaseWatch, this_attempt: str) -> None:
    """Deletes the attempts that no living process works on, except whole ones, which may be in use."""
    folder = folder_of_attempts(place)
    living = _list_living(folder, watch)
    for name in _attempts(folder):
        if name not in (*living, this_attempt) and not (folder / name / RECORD).exists():
            (folder / name).delete()
            (folder / f"{name}{LEASE}").delete()


def _attempts(folder: Place) -> list[str]:
    """Names of the attempts that have a lease or files, oldest first."""
    names = {name.removesuffix(LEASE) for name in folder.names() if name[:4].isdigit() and not name.endswith(DRAFT)}
    return sorted(names)


def _list_living(folder: Place, watch: LeaseWatch) -> list[str]:
    """Names of the attempts whose owner lives."""
    return [name for name in _attempts(folder) if watch.lives(folder / f"{name}{LEASE}")]


def _take_over(folder: Place, name: str, watch: LeaseWatch) -> None:
    """Starts the attempt `name` with the files of the newest attempt of a dead process, if there is one.

    An attempt that died while it was filled in this way is passed over: a step sees by one file whether others are
    there, and the copies come in another order than the step wrote its files. What it was filled from is still there.

    Dead attempts whose process is surely gone are deleted. One that has only been silent is kept until the artifact is
    finished, since its process may wake up and finish it.
    """
    dead = [other for other in _attempts(folder) if other < name and not watch.lives(folder / f"{other}{LEASE}")]
    filled = [other for other in dead if not (folder / other / FILLING).exists()]
    if filled:
        log.info("resuming from %s, which a process that has ended left unfinished", folder / filled[-1])
        try:
            (folder / name / FILLING).write(b"")
            for file in (folder / filled[-1]).sizes():
                if file != RECORD and not file.endswith(DRAFT):
                    (folder / name / file).copy_from(folder / filled[-1] / file)
            (folder / name / FILLING).delete()
        except FileNotFoundError:  # its process woke up, or another one has taken it over
            (folder / name).delete()
    for other in dead:
        if watch.is_surely_dead(folder / f"{other}{LEASE}"):
            (folder / other).delete()
            (folder / f"{other}{LEASE}").delete()


@dataclass(frozen=True)
class Artifact:
    """A finished step: the folder of its files and its record (step, fingerprint, config, inputs, result, files)."""

    place: Place
    record: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return str(self.record["fingerprint"])

    @property
    def result(self) -> dict[str, Any]:
        """The step's small results: counts, measures, seconds."""
        return dict(self.record["result"])

    @property
    def address(self) -> Place:
        """STORE/STEP/FINGERPRINT, under which `load` finds the artifact; on an object store, its files lie below."""
        name = self.record.get("attempt")
        if name is None:
            return Place(self.place.uri)
        options = self.place.uri[len(self.place.base) :]
        return Place(self.place.base.removesuffix(f"/{name}") + options)


def load(place: Place) -> Artifact:
    """Loads the finished artifact at a place.

    Raises:
        UserError: if there is no record, so nothing finished here, or a file is missing or has another size than the
            record states.
    """
    record = read_record(place)
    folder = place / record["attempt"] if "attempt" in record else place
    check_sizes(place, folder, record.get("files", {}))
    return Artifact(Place(folder.uri, None if folder.is_path else Digests(place, folder)), record)


def produce(
    place: Place, record: dict[str, Any], make: Callable[[Place], dict[str, Any]], timing: Timing | None = None
) -> Artifact:
    """The artifact at `place`: loaded if finished, else made by `make(out)` in a folder of this process's own.

    The result of `make` enters the record, which makes the artifact visible. After a kill, `make` finds the files that
    the dead process has finished. While another living process makes the artifact, this one waits. If this one was
    silent for so long (a machine asleep) that another has finished it and deleted this one's files, that artifact is
    loaded.

    Args:
        timing: of leases; None: the default.
    """
    with attempt(place, timing or Timing()) as this_attempt:
        if this_attempt is not None:
            try:
                this_attempt.publish({**record, "result": make(this_attempt.out)})
            except OSError:  # of a file that is gone
                if not (place / RECORD).exists():
                    raise
                log.info("another process has finished %s meanwhile", place)
    return load(place)


def start_afresh(out: Place) -> None:
    """Deletes what an interrupted call has left, for a step that cannot go on from it."""
    for name in out.names():
        (out / name).delete()
