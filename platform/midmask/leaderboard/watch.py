"""Keeps a snapshot of one store fresh behind the pages' back: they show what is known and never wait for long.

A look runs in a thread of its own. What it finds replaces what was known at once, so that a page that is being drawn
keeps what it began with. If the store goes away, what was known stays, with the error beside it.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from midmask.leaderboard.entries import Entry, entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.leaderboard.snapshot import Snapshot, refresh
from midmask.leaderboard.snapshot_file import load, save, snapshot_place
from midmask.tracking import StoreReader, TrackedRow

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
    """What is known of the store at `uri`, and the thread that looks for more.

    known: None until the first look has ended. error: of the last look, None if it succeeded; a UserError if the
    store does not answer. count: how many runs a look has read that reads everything.
    """

    def __init__(self, uri: str, place: Path) -> None:
        self.known: StoreView | None = None
        self.error: Exception | None = None
        self.count = 0
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
        """Whether no look is under way any more, after at most that many seconds."""
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
    """What the store holds now, read as a watch reads it: from the snapshot beside the store, and what has changed.

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
