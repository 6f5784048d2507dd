"""The tracked runs of a store and what is made of them, as they were known at a time: what pages and commands read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from midmask.leaderboard.entries import Entry, entries
from midmask.leaderboard.rows import LeaderboardRow, PerQueryOf, per_query_files, rows
from midmask.tracking.names import ui_address
from midmask.tracking.reading import TrackedRow, read_runs


@dataclass(frozen=True)
class StoreView:
    """Runs, newest first, and the rows and entries made of them, as of a time. All sessions of the pages share one, so
    that none may change it.
    """

    uri: str
    runs: Sequence[TrackedRow]
    rows: Sequence[LeaderboardRow]
    entries: Sequence[Entry]
    per_query: PerQueryOf
    looked: datetime

    def link(self, run: TrackedRow) -> str:
        """The address of a run in MLflow's own pages."""
        return f"{ui_address(self.uri)}/#/experiments/{run.experiment_id}/runs/{run.run_id}"


def look(uri: str) -> StoreView:
    """Reads the store.

    Raises:
        UserError: if it does not answer.
    """
    runs, looked = read_runs(uri), datetime.now(UTC)
    leaderboard_rows = rows(runs)
    return StoreView(uri, runs, leaderboard_rows, entries(leaderboard_rows), per_query_files(uri), looked)
