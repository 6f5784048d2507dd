"""Attempts: each process that makes an artifact writes into a folder of its own, and the first one to finish wins.

    path   STEP/FINGERPRINT.attempts/0001-5f3a/    renamed to STEP/FINGERPRINT/ when the record is in it
    URI    STEP/FINGERPRINT/0001-5f3a/             stays; STEP/FINGERPRINT/record.json names it

Beside each attempt lies its lease, `0001-5f3a.lease`, which names the process and is written again every few seconds.
Another process waits while a lease lives. The attempt of a dead process is taken over: its files become the start of a
new attempt under the next number. They are linked or copied, never written in place, since a process that was only
paused, or workers that outlive their driver, may still write into the old folder.
"""

import contextlib
import errno
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from midmask.errors import UserError
from midmask.store.digests import RECORD, Digests, check_sizes, measure, read_record, remember
from midmask.store.leases import LEASE, LeaseWatch, Timing, lease
from midmask.store.place import DRAFT, Place

log = logging.getLogger(__name__)

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
    _refuse_leftovers(place)
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


def _clear(place: Place, watch: LeaseWatch, own: str) -> None:
    """Deletes the attempts that no living process works on, except whole ones, which may be in use."""
    folder = folder_of_attempts(place)
    living = _list_living(folder, watch)
    for name in _attempts(folder):
        if name not in (*living, own) and not (folder / name / RECORD).exists():
            (folder / name).delete()
            (folder / f"{name}{LEASE}").delete()


def _refuse_leftovers(place: Place) -> None:
    if place.is_path and (names := place.names()) and RECORD not in names:
        raise UserError(
            f"{place} holds files but no {RECORD}: an older midmask was interrupted there. Delete it and run the same "
            "command again."
        )


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
    remember(place, record)
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
    with attempt(place, timing or Timing()) as own:
        if own is not None:
            try:
                own.publish({**record, "result": make(own.out)})
            except OSError:  # of a file that is gone
                if not (place / RECORD).exists():
                    raise
                log.info("another process has finished %s meanwhile", place)
    return load(place)


def start_afresh(out: Place) -> None:
    """Deletes what an interrupted call has left, for a step that cannot go on from it."""
    for name in out.names():
        (out / name).delete()
