"""A run's values on disk until the store has them: `<home>/mlflow-pending/<store>-<run>.jsonl`.

Each value is appended here before it is sent, with its own time stamp, so that sending it a second time is the same
metric to MLflow and lands once. A killed job loses nothing: the next one on the same store sends what it finds. The
owner of a journal holds a lock on it, which the kernel drops when the process dies; nobody else sends, or resumes, a
run that is alive.

A full disk ends nothing: values then wait in memory alone, with one warning, and are lost if the job is killed before
they were sent.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from midmask.redaction import redacted

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)


class JournalEntry(NamedTuple):
    """One thing to send. kind and value:

    metrics  [[key, value, time in ms, step], …]
    params   {name: text}
    tags     {name: text}
    file     [path, folder in the run's artifacts]
    text     [text, name in the run's artifacts]
    datasets, made, used, measured    as `lineage` makes them
    end      [MLflow status, time in ms]
    """

    kind: str
    value: Any


class Journal:
    """An append-only file that this process alone owns."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._is_torn = False
        self._is_lossy = False

    @classmethod
    def claim(cls, path: Path) -> "Journal | None":
        """The journal at `path`, made if it is not there; None if a living process owns it."""
        try:
            return cls._claim(path)
        except OSError as error:
            if error.errno not in FULL:
                raise
            journal = cls(path, os.memfd_create(path.name))
            journal._warn(error)
            return journal

    @classmethod
    def _claim(cls, path: Path) -> "Journal | None":
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                    break
            os.close(descriptor)  # the owner before us removed the file between our open and our lock
        journal = cls(path, descriptor)
        journal._look_for_torn_line()
        return journal

    def _look_for_torn_line(self) -> None:
        """A process killed while writing leaves half a line; what follows must begin on its own."""
        size = os.fstat(self._descriptor).st_size
        self._is_torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"

    def append(self, entry: JournalEntry) -> None:
        """Writes an entry to disk; a disk that does not take it is one warning."""
        line = (b"\n" if self._is_torn else b"") + json.dumps(entry).encode() + b"\n"
        try:
            written = os.write(self._descriptor, line)
            self._is_torn = written < len(line)
            if self._is_torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._is_lossy:
            log.warning(
                "%s cannot be written (%s); the run goes on, and its values are lost only if the job is killed before "
                "they have been sent", self.path, error.strerror,
            )  # fmt: skip
        self._is_lossy = True

    def entries(self) -> Iterator[JournalEntry]:
        """The entries in the order in which they were appended, without a half-written line."""
        for line in os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0).splitlines():
            try:
                kind, value = json.loads(line)
            except ValueError:
                if line:
                    log.warning("%s: a half-written line is left out", self.path)
            else:
                yield JournalEntry(kind, value)

    def clear(self) -> None:
        """Everything appended so far has arrived."""
        os.ftruncate(self._descriptor, 0)
        self._is_torn = False

    def refuse(self, entries: list[JournalEntry]) -> Path:
        """Writes entries that the store refuses to a file beside the journal, if there is room; returns its path."""
        path = self.path.with_suffix(".refused")
        try:
            with open(path, "a") as stream:
                stream.writelines(json.dumps(entry) + "\n" for entry in entries)
        except OSError as error:
            self._warn(error)
        return path

    def close(self, *, remove: bool) -> None:
        """Gives up the lock; with `remove`, the file too."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def journal_path(home: Path, uri: str, run_id: str) -> Path:
    return home / "mlflow-pending" / f"{_store(uri)}-{run_id}.jsonl"


def find_left_behind(home: Path, uri: str) -> list[tuple[str, Path]]:
    """(run id, path) of every journal of this store, alive or not."""
    prefix = _store(uri) + "-"
    found = sorted((home / "mlflow-pending").glob(f"{prefix}*.jsonl"))
    return [(path.stem.removeprefix(prefix), path) for path in found]


def _store(uri: str) -> str:
    """A short name for a store that does not give its credentials away."""
    return hashlib.sha256(redacted(uri).encode()).hexdigest()[:8]
