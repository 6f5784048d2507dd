"""Rows that workers have sent and the driver has not yet taken, in a file that outlives the process that holds them.

A SQLite file below the driver's temporary folder, written by one actor on the driver's node (`backend.channel`). Killed
and started again, the actor finds there what it had accepted, so that a row that was accepted once is delivered once.
"""

import logging
import pickle
import sqlite3
from typing import Any

log = logging.getLogger(__name__)

ReportRow = dict[str, Any]

TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT, row BLOB);
CREATE TABLE IF NOT EXISTS writers (name TEXT PRIMARY KEY, sent INTEGER);
"""
"""`synchronous = OFF`: what was written survives the death of the process; that of the machine ends the driver too."""


class Post:
    """Rows in the order of their arrival.

    Args:
        path: of the file. Where it cannot be written (a full disk), rows are kept in memory, with one warning.
    """

    def __init__(self, path: str) -> None:
        try:
            self._rows = sqlite3.connect(path, check_same_thread=False)
            self._rows.executescript(TABLES)
        except sqlite3.Error as error:
            self._rows = sqlite3.connect(":memory:", check_same_thread=False)
            self._rows.executescript(TABLES)
            _warn(error)

    def push(self, writer: str, first: int, rows: list[tuple[str, ReportRow]]) -> None:
        """Accepts a writer's rows number `first`, `first + 1`, …; those that it has sent before are ignored."""
        try:
            self._accept(writer, first, rows)
        except sqlite3.OperationalError as error:
            memory = sqlite3.connect(":memory:", check_same_thread=False)
            self._rows.backup(memory)
            self._rows.close()
            self._rows = memory
            _warn(error)
            self._accept(writer, first, rows)

    def _accept(self, writer: str, first: int, rows: list[tuple[str, ReportRow]]) -> None:
        with self._rows as transaction:
            found = transaction.execute("SELECT sent FROM writers WHERE name = ?", [writer]).fetchone()
            new = rows[max(0, (found[0] if found else 0) - first) :]
            packed = [(source, pickle.dumps(row)) for source, row in new]
            transaction.executemany("INSERT INTO rows (source, row) VALUES (?, ?)", packed)
            if new:
                transaction.execute("INSERT OR REPLACE INTO writers VALUES (?, ?)", [writer, first + len(rows)])

    def take(self, after: int) -> list[tuple[int, str, ReportRow]]:
        """(number, source, row) of every row that came after row number `after`; the others are forgotten."""
        with self._rows as transaction:
            transaction.execute("DELETE FROM rows WHERE number <= ?", [after])
        found = self._rows.execute("SELECT number, source, row FROM rows ORDER BY number").fetchall()
        return [(number, source, pickle.loads(row)) for number, source, row in found]


def _warn(error: sqlite3.Error) -> None:
    log.warning("reports of workers are kept in memory only (%s); those that wait are lost if this process dies", error)
