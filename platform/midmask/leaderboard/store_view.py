"""The tracked runs of a store and what is made of them, as they were known at a time."""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from midmask.errors import UserError
from midmask.leaderboard.entries import Entry, entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.tracking.reading import TrackedRow, read_runs

PAUSE = 10.0
"""Seconds between two looks, at least; and at least ten times as long as the last one took."""

ENOUGH = 1.0
"""Seconds that a page waits for news before it shows what was known."""


def artifact_cache() -> Path:
    """Where copies of artifacts of other machines are kept: below XDG_CACHE_HOME, else below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "midmask" / "artifacts"


@dataclass(frozen=True)
class StoreView:
    """Runs, newest first, and the rows and entries made of them, as of a time."""

    runs: Sequence[TrackedRow]
    rows: Sequence[LeaderboardRow]
    entries: Sequence[Entry]
    looked: datetime


def look(uri: str) -> StoreView:
    """Reads the store.

    Raises:
        UserError: if it does not answer.
    """
    runs, looked = read_runs(uri), datetime.now(UTC)
    found = rows(runs)
    return StoreView(runs, found, entries(found), looked)


class StoreWatch:
    """The last view of the store at `uri`, which all sessions of the pages share."""

    def __init__(self, uri: str) -> None:
        self.error: Exception | None = None  # why the last look has failed
        self._uri = uri
        self._known: StoreView | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread()
        self._next = 0.0

    def view(self) -> StoreView:
        """What is known of the store. It is read again in a thread unless that was done a moment ago; a large store
        takes long, so news is waited for only briefly. If the store goes away, what was known stays.

        Raises:
            UserError: if nothing is known and the store does not answer.
        """
        with self._lock:
            if not self._thread.is_alive() and time.monotonic() >= self._next:
                self._thread = threading.Thread(target=self._look, daemon=True, name="midmask-watch")
                self._thread.start()
        self._thread.join(ENOUGH if self._known else None)
        if self.error is not None and (self._known is None or not isinstance(self.error, UserError)):
            raise self.error
        assert self._known is not None, "a look has ended without an error"
        return self._known

    def _look(self) -> None:
        began = time.monotonic()
        try:
            self._known, self.error = look(self._uri), None
        except Exception as error:
            self.error = error
        ended = time.monotonic()
        self._next = ended + max(PAUSE, 10 * (ended - began))
