"""The tracked runs of a store and what is made of them, as they were known at a time."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from midmask.leaderboard.entries import Entry, entries
from midmask.leaderboard.rows import LeaderboardRow, rows
from midmask.tracking.reading import TrackedRow, read_runs


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
