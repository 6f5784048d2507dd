"""The tracked runs of a store as a snapshot: asked only for what changed, kept in a file, refreshed in a thread.

MLflow keeps no time of a run's last change, so what may have changed is asked for in four ways: runs that have not
ended; runs that began or ended since shortly before the last look (the clocks of a cluster differ); runs that had not
ended at the last look, by their ids (their end may be told late, with the time at which it was); and the deleted ones.
Two things escape this, a tag that is edited by hand after the end, and a run that is deleted and purged between two
looks; so everything is read again when a day has passed, or when asked to.

The file is a cache and nothing more. One of another format, a torn one, or one that cannot be written is as none: then
everything is read again. It appears whole, by renaming, so that pages of several servers may share it; whoever comes
last wins, and any of them is true.

A look runs in a thread of its own, so pages show what is known and never wait for long. What it finds replaces what was
known at once, so that a page that is being drawn keeps what it began with. If the store goes away, what was known
stays, with the error beside it.
"""

import contextlib
import gzip
import logging
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from midmask.core.config import fingerprint
from midmask.leaderboard.entries import Entry, entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.tracking.names import sqlite_file
from midmask.tracking.reading import StoreReader, TrackedRow

log = logging.getLogger(__name__)


OVERLAP = timedelta(minutes=15)
"""How far the clocks of machines that write to one store may differ."""

WHOLE_AGAIN = timedelta(days=1)


@dataclass(frozen=True)
class Snapshot:
    """The runs of a store at one time."""

    store: str  # as `StoreReader.identity`
    looked: datetime  # when changes were last asked for
    whole: datetime  # when everything was last read
    runs: Mapping[str, TrackedRow]  # id -> run
    deleted: frozenset[str]  # ids of runs in MLflow's bin; one that leaves it may have been restored

    def newest_first(self) -> list[TrackedRow]:
        return sorted(self.runs.values(), key=lambda run: run.started, reverse=True)


def refresh(
    known: Snapshot | None, reader: StoreReader, progress: Callable[[int], None] = lambda count: None
) -> Snapshot:
    """Reads the store's current runs; returns `known` with a new time if nothing changed.

    Args:
        known: an earlier look; None: read everything.
        progress: told how many runs have been read when everything is read.

    Raises:
        UserError: if the store does not answer.
    """
    now = datetime.now(UTC)
    if known is None or known.store != reader.identity or now - known.whole > WHOLE_AGAIN or now < known.looked:
        deleted = reader.deleted()
        return Snapshot(reader.identity, now, now, _by_id(reader.all(progress)), deleted)
    unsettled = {run.run_id for run in known.runs.values() if run.ended is None}
    deleted = reader.deleted()
    found = _by_id(reader.running_or_since(known.looked - OVERLAP))
    asked = (unsettled | known.deleted) - found.keys() - deleted
    found |= _by_id(reader.named(asked))
    gone = (deleted | asked) - found.keys()
    changed = {run_id: run for run_id, run in found.items() if known.runs.get(run_id) != run}
    if not changed and deleted == known.deleted and not gone & known.runs.keys():
        return replace(known, looked=now)
    runs = {run_id: run for run_id, run in {**known.runs, **changed}.items() if run_id not in gone}
    return Snapshot(known.store, now, known.whole, runs, deleted)


def _by_id(runs: Sequence[TrackedRow]) -> dict[str, TrackedRow]:
    return {run.run_id: run for run in runs}


FORMAT = 3
"""Of the file; one of another number is read as none."""


def snapshot_place(uri: str) -> Path:
    """The snapshot's path: beside a SQLite file in a writable folder, else in the user's cache folder."""
    path = sqlite_file(uri)
    if path is not None and os.access(path.parent, os.W_OK):
        return Path(f"{path}.runs.json.gz")
    return cache_folder() / f"{fingerprint({'store': uri})}.runs.json.gz"


def cache_folder() -> Path:
    """`midmask` below XDG_CACHE_HOME, else below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midmask"


class _File(BaseModel):
    """A snapshot as a file holds it. Equal texts are read as one object, since thousands of runs share few texts."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    format: int
    snapshot: Snapshot


def save(snapshot: Snapshot, path: Path) -> None:
    """Writes the file, or says in the log why it cannot be written."""
    text = _File(format=FORMAT, snapshot=snapshot).model_dump_json()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            draft = Path(folder) / path.name
            draft.write_bytes(gzip.compress(text.encode(), compresslevel=1))
            os.replace(draft, path)
    except OSError as error:
        log.warning("the snapshot of the runs is not kept, so the next start reads them all again: %s", error)


def load(path: Path) -> Snapshot | None:
    """The snapshot in this file, None if there is none that this version can read."""
    with contextlib.suppress(OSError, EOFError, zlib.error, ValueError):
        file = _File.model_validate_json(gzip.decompress(path.read_bytes()))
        return file.snapshot if file.format == FORMAT else None
    return None


PAUSE = 10.0
"""Seconds between two looks, at least; and at least ten times as long as the last one took."""


@dataclass(frozen=True)
class StoreView:
    """Runs, newest first, and the rows and entries made of them, as of a time."""

    runs: Sequence[TrackedRow]
    rows: Sequence[LeaderboardRow]
    entries: Sequence[Entry]
    looked: datetime


class StoreWatch:
    """The last view of the store at `uri`, and the thread that reads changes."""

    def __init__(self, uri: str, place: Path) -> None:
        self.known: StoreView | None = None  # None until the first look has ended
        self.error: Exception | None = None  # of the last look; a UserError if the store does not answer
        self.count = 0  # runs that a look which reads everything has read so far
        self._uri = uri
        self._place = place
        self._snapshot: Snapshot | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._next = 0.0

    def look(self, *, again: bool = False) -> None:
        """Starts a look, unless one is under way or the last was a moment ago.

        Args:
            again: read everything, now.
        """
        with self._lock:
            if self._thread and self._thread.is_alive():
                return
            if again:
                self._snapshot = None
            if again or time.monotonic() >= self._next:
                self._thread = threading.Thread(target=self._look, args=(again,), daemon=True, name="midmask-watch")
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits for a look to end, at most that many seconds; returns whether none is under way."""
        thread = self._thread
        if thread:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _look(self, again: bool) -> None:
        began = time.monotonic()
        try:
            before = self._snapshot
            if before is None and not again and (before := load(self._place)) is not None:
                self._tell(before)
            after = refresh(before, StoreReader(self._uri), self._progress)
            self._tell(after)
            if after.store and (before is None or after.runs is not before.runs):
                save(after, self._place)
            self.error = None
        except Exception as error:
            self.error = error
        finally:
            self._next = time.monotonic() + max(PAUSE, 10 * (time.monotonic() - began))

    def _tell(self, snapshot: Snapshot) -> None:
        if self._snapshot is None or self.known is None or snapshot.runs is not self._snapshot.runs:
            runs = snapshot.newest_first()
            found = rows(runs)
            self.known = StoreView(runs, found, entries(found), snapshot.looked)
        else:
            self.known = replace(self.known, looked=snapshot.looked)
        self._snapshot = snapshot

    def _progress(self, count: int) -> None:
        self.count = count


def look_once(uri: str) -> StoreView:
    """Reads the store as a watch does: the snapshot beside the store, then the changes since.

    Raises:
        UserError: if the store does not answer.
    """
    watch = StoreWatch(uri, snapshot_place(uri))
    watch.look()
    while not watch.wait(PAUSE):
        pass
    if watch.error is not None or watch.known is None:
        raise watch.error or RuntimeError("a look has ended without a result")
    return watch.known
