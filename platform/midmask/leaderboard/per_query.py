"""The per-query values that tracked runs keep, read once: they are artifacts, and may lie on another machine."""

from collections import OrderedDict
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from midmask.leaderboard.rows import LeaderboardRow
from midmask.tracking import artifact_file

KEPT = 512
"""Tables in memory; one of 7,000 queries and three measures takes about a megabyte."""


class PerQueryFiles:
    """Tables (query_id, measure, value) of the runs of one store."""

    def __init__(self, uri: str, cache: Path) -> None:
        self._uri = uri
        self._cache = cache
        self._tables: OrderedDict[tuple[str, str, str], pa.Table | None] = OrderedDict()
        self._lock = Lock()

    def __call__(self, row: LeaderboardRow) -> pa.Table | None:
        """The table of the row's run, corpus and split; None if the run keeps none.

        Raises:
            UserError: if the store does not answer.
        """
        key = (row.run_id, row.corpus, row.split)
        with self._lock:
            if key not in self._tables:
                self._tables[key] = self._read(row)
                if len(self._tables) > KEPT:
                    self._tables.popitem(last=False)
            self._tables.move_to_end(key)
            return self._tables[key]

    def _read(self, row: LeaderboardRow) -> pa.Table | None:
        path = artifact_file(self._uri, row.run_id, f"per_query/{row.corpus}.{row.split}.parquet", self._cache)
        return None if path is None else pq.read_table(path)
