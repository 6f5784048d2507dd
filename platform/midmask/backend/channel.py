"""How workers report to the driver: they push rows, the driver drains them; it alone writes to MLflow or a terminal.

Rows wait in one actor on the driver's node. Ray starts it again whenever it dies, and it finds what it had accepted in
a SQLite file below the driver's temporary folder (`Post`). A worker keeps the rows that were not accepted and sends
them again with its next push; numbers tell which ones have arrived, so that none counts twice. Hence a report is
delayed by the death of any process but the worker's own and the driver's, and not lost; and whatever goes wrong with a
report, the training goes on.
"""

import logging
import pickle
import sqlite3
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from midmask.backend.scratch import Scratch
from midmask.core.process import ticking

log = logging.getLogger(__name__)

ReportRow = dict[str, Any]

POST_TABLES = """
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
            self._rows.executescript(POST_TABLES)
        except sqlite3.Error as error:
            self._rows = sqlite3.connect(":memory:", check_same_thread=False)
            self._rows.executescript(POST_TABLES)
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
            sent_row = transaction.execute("SELECT sent FROM writers WHERE name = ?", [writer]).fetchone()
            new = rows[max(0, (sent_row[0] if sent_row else 0) - first) :]
            packed = [(source, pickle.dumps(row)) for source, row in new]
            transaction.executemany("INSERT INTO rows (source, row) VALUES (?, ?)", packed)
            if new:
                transaction.execute("INSERT OR REPLACE INTO writers VALUES (?, ?)", [writer, first + len(rows)])

    def take(self, after: int) -> list[tuple[int, str, ReportRow]]:
        """(number, source, row) of every row that came after row number `after`; the others are forgotten."""
        with self._rows as transaction:
            transaction.execute("DELETE FROM rows WHERE number <= ?", [after])
        selected = self._rows.execute("SELECT number, source, row FROM rows ORDER BY number").fetchall()
        return [(number, source, pickle.loads(row)) for number, source, row in selected]


def _warn(error: sqlite3.Error) -> None:
    log.warning("reports of workers are kept in memory only (%s); those that wait are lost if this process dies", error)


WAIT_S = 30.0
"""How long a push or a drain waits for the actor, which Ray needs a few seconds to start again."""

KEPT = 100_000
"""Rows that a worker keeps for an actor that does not answer; of more, the oldest are dropped."""


class Channel:
    """The worker's end of a channel, or the driver's (`open`). Sent to tasks and actors, it becomes a worker's end."""

    def __init__(self, post: Any) -> None:
        self._post = post
        self._writer = uuid.uuid4().hex
        self._waiting: deque[tuple[str, ReportRow]] = deque(maxlen=KEPT)
        self._pushed = 0
        self._sending: Any = None
        self._is_late = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Channel"], tuple[Any]]:
        return Channel, (self._post,)

    def push(self, source: str, rows: list[ReportRow]) -> None:
        """Sends rows of plain data and waits until they are accepted, `WAIT_S` at most; never raises.

        Once the actor was late, no push waits for it until it has answered again.
        """
        with self._lock:
            self._waiting.extend((source, row) for row in rows)
            self._pushed += len(rows)
            try:
                self._send()
            except Exception as error:  # of Ray, in whatever state it is
                self._warn(error)

    def _send(self) -> None:
        if self._sending is not None:
            count, reference = self._sending
            self._finish(count, reference, 0.0)
            if self._sending is not None:
                return  # rows stay in their order: one request at a time
        count = len(self._waiting)
        reference = self._post.push.remote(self._writer, self._pushed - count, list(self._waiting))
        self._sending = (self._pushed, reference)
        self._finish(self._pushed, reference, 0.0 if self._is_late else WAIT_S)

    def _finish(self, upto: int, reference: Any, seconds: float) -> None:
        """Takes the answer to the request that sent all rows before number `upto`, if it comes in time."""
        ready, _ = ray.wait([reference], timeout=seconds)
        if not ready:
            self._warn(TimeoutError(f"no answer within {WAIT_S:g} s"))
            return
        self._sending = None
        ray.get(reference)
        while self._waiting and self._pushed - len(self._waiting) < upto:
            self._waiting.popleft()
        if self._is_late:
            log.info("reports reach the driver again")
        self._is_late = False

    def _warn(self, error: Exception) -> None:
        if not self._is_late:
            log.warning("reports to the driver are delayed (%s); the work goes on", str(error).partition("\n")[0])
        self._is_late = True

    @staticmethod
    @contextmanager
    def open() -> Iterator["Drain"]:
        """The driver's end, for the length of a block."""
        place = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        scratch = Scratch()
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": place}
        drain = Drain(ray.remote(**options)(Post).remote(str(scratch.folder / "reports.db")))
        try:
            yield drain
        finally:
            with suppress(ray.exceptions.RayError):
                ray.kill(drain._post)
            scratch.remove()


class Drain(Channel):
    """The driver's end of a channel."""

    def __init__(self, post: Any) -> None:
        super().__init__(post)
        self._taken = 0

    def drain(self) -> list[tuple[str, ReportRow]]:
        """All (source, row) that have arrived since the last call, in the order of their arrival.

        Empty, with a warning, if the actor does not answer within `WAIT_S`; the rows then come with a later call.
        """
        try:
            arrived = ray.get(self._post.take.remote(self._taken), timeout=WAIT_S)
        except ray.exceptions.RayError as error:
            self._warn(error)
            return []
        self._is_late = False
        self._taken = max((number for number, _, _ in arrived), default=self._taken)
        return [(source, row) for _, source, row in arrived]

    @contextmanager
    def forwarding(self, to: Callable[[str, ReportRow], None], *, every_s: float = 1.0) -> Iterator[None]:
        """Calls `to` with everything that arrives while the block runs, on a thread; the last rows when it ends.

        A row that makes `to` raise is logged and left out: it ends neither the thread nor the work.
        """

        def forward() -> None:
            for source, row in self.drain():
                try:
                    to(source, row)
                except Exception:
                    log.exception("a report of %s is left out", source)

        try:
            with ticking(forward, every_s, "midmask-channel"):
                yield
        finally:
            forward()
