"""A run's values on their way to the store: a journal on disk, and one background thread that carries them.

    log() in any thread -> journal on disk -> queue -> the thread -> store -> journal cleared

Each value is appended to `<home>/mlflow-pending/<store>-<run>.jsonl` before it is sent, with its own time stamp, so
that sending it a second time is the same metric to MLflow and lands once. A killed job loses nothing: the next one on
the same store sends what it finds. The owner of a journal holds a lock on it, which the kernel drops when the process
dies; nobody else sends, or resumes, a run that is alive. A full disk ends nothing: values then wait in memory alone,
with one warning, and are lost if the job is killed before they were sent.

A store that is away costs one warning per outage: values wait in the queue and on disk, and attempts go on with growing
pauses. What the store refuses for good (a run that a person deleted, artifacts whose folder cannot be written, models
where the server is too old to know them) is put aside with a warning, and the rest goes on.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from midmask.core.redaction import redacted
from midmask.tracking.lineage import KINDS as LINEAGE
from midmask.tracking.lineage import send_lineage
from midmask.tracking.store import EXPERIMENT, FAILURES, Patience, is_refusal, reason

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)


class JournalEntry(NamedTuple):
    """One entry to send to the store. Kinds and their values:

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
    journals = sorted((home / "mlflow-pending").glob(f"{prefix}*.jsonl"))
    return [(path.stem.removeprefix(prefix), path) for path in journals]


def _store(uri: str) -> str:
    """A short name for a store that does not give its credentials away."""
    return hashlib.sha256(redacted(uri).encode()).hexdigest()[:8]


LIMITS = {"metrics": 1000, "params": 100, "tags": 100}
"""Largest batch that MLflow accepts; MAX_METRICS_PER_BATCH and MAX_PARAMS_TAGS_PER_BATCH of its validation."""

SPARED = ("file", "text", *LINEAGE)
"""Kinds that may fail for reasons of their own (a folder that cannot be written, a server that knows no models)."""


class Outbox:
    """A run's journal and how many of its entries are still to be sent. Guarded by the sender's lock."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        self.run_id = run_id
        self.journal = journal
        self.waiting = 0
        self.closing = False
        self.closed = False


class Sender:
    """The queue and its thread. Every method may be called from any thread."""

    def __init__(self, client: MlflowClient, uri: str, patience: Patience) -> None:
        self._client = client
        self._shown = redacted(uri)
        self._patience = patience
        self._queue: deque[tuple[Outbox, JournalEntry]] = deque()
        self._open: set[Outbox] = set()
        self._changed = threading.Condition()
        self._hurry = False
        self._give_up = threading.Event()
        self._thread = threading.Thread(target=self._deliver_until_stopped, name="midmask-tracking", daemon=True)
        self._thread.start()

    def open(self, run_id: str, journal: Journal) -> Outbox:
        """An outbox for a run whose journal this process owns; what lies in the journal is sent first."""
        outbox = Outbox(run_id, journal)
        with self._changed:
            self._open.add(outbox)
            for entry in journal.entries():
                self._enqueue(outbox, entry)
        return outbox

    def put(self, outbox: Outbox, entry: JournalEntry) -> None:
        """Queues an entry that a kill cannot lose any more.

        Raises:
            RuntimeError: if the run was finished.
        """
        with self._changed:
            if outbox.closing:
                raise RuntimeError(f"run {outbox.run_id} is finished; {entry.kind} came too late")
            outbox.journal.append(entry)
            self._enqueue(outbox, entry)

    def _enqueue(self, outbox: Outbox, entry: JournalEntry) -> None:
        self._queue.append((outbox, entry))
        outbox.waiting += 1
        self._changed.notify_all()

    def finish(self, outbox: Outbox) -> None:
        """Accepts no more entries for this run; deletes its journal when all have arrived."""
        with self._changed:
            outbox.closing = True
            self._settle(outbox, 0)

    def _settle(self, outbox: Outbox, arrived: int) -> None:
        outbox.waiting -= arrived
        if outbox.waiting == 0 and not outbox.closed:
            if outbox.closing:
                self._release(outbox, remove=True)
            elif arrived:
                outbox.journal.clear()
        self._changed.notify_all()

    def _release(self, outbox: Outbox, *, remove: bool) -> None:
        outbox.journal.close(remove=remove)
        outbox.closed = True
        self._open.discard(outbox)

    def drain(self, seconds: float) -> bool:
        """Waits until everything has arrived; False if that takes longer than `seconds`."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._give_up.is_set() or not self._has_waiting(), seconds)
            self._hurry = False
            return not self._has_waiting()

    def _has_waiting(self) -> bool:
        return any(outbox.waiting for outbox in self._open)

    def close(self) -> list[Path]:
        """Waits for `patience.close` seconds at most, ends the thread; the journals that still hold something."""
        self.drain(self._patience.close)
        self._stop()
        self._thread.join(self._patience.retry)
        with self._changed:
            journals = sorted(outbox.journal.path for outbox in self._open if outbox.waiting)
            for outbox in list(self._open):
                outbox.closing = True
                self._release(outbox, remove=not outbox.waiting)
        return journals

    def _stop(self) -> None:
        self._give_up.set()
        with self._changed:
            self._changed.notify_all()

    def _deliver_until_stopped(self) -> None:
        try:
            while not self._give_up.is_set():
                if not all(self._deliver(outbox, batch) for outbox, batch in self._take()):
                    return
        finally:
            self._stop()

    def _take(self) -> Iterator[tuple[Outbox, list[JournalEntry]]]:
        """Takes all entries from the queue; yields them in batches, each run's in order."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._give_up.is_set())
            self._changed.wait_for(lambda: self._hurry or self._give_up.is_set(), self._patience.flush)
            taken = list(self._queue)
            self._queue.clear()
        for outbox in dict.fromkeys(outbox for outbox, _ in taken):
            for batch in batches([entry for owner, entry in taken if owner is outbox]):
                yield outbox, batch

    def _deliver(self, outbox: Outbox, batch: list[JournalEntry]) -> bool:
        """Sends one batch, for as long as it takes; False if the tracker was closed first."""
        since, pause, strikes = time.monotonic(), self._patience.retry, 0
        while (error := self._attempt(outbox, batch)) is not None:
            strikes += batch[0].kind in SPARED and self._is_reachable()
            if is_refusal(error) or strikes == 3:
                self._refuse(outbox, batch, error)
                break
            if pause == self._patience.retry:
                self._warn(outbox, error)
            if self._give_up.wait(pause):
                return False
            pause = min(2 * pause, self._patience.longest_retry)
        if error is None and pause > self._patience.retry:
            log.info("the tracking store %s is back after %.0f s", self._shown, time.monotonic() - since)
        with self._changed:
            self._settle(outbox, len(batch))
        return True

    def _attempt(self, outbox: Outbox, batch: list[JournalEntry]) -> Exception | None:
        try:
            send(self._client, outbox.run_id, batch)
        except FAILURES as error:
            return error
        return None

    def _is_reachable(self) -> bool:
        """Whether the store itself is there, so that what failed is at fault: where artifacts go, or what it knows."""
        try:
            self._client.get_experiment_by_name(EXPERIMENT)
        except FAILURES:
            return False
        return True

    def _warn(self, outbox: Outbox, error: Exception) -> None:
        folder = outbox.journal.path.parent
        log.warning(
            "the tracking store %s does not answer (%s); the run goes on, its values are kept in %s and sent later",
            self._shown, reason(error), folder,
        )  # fmt: skip

    def _refuse(self, outbox: Outbox, batch: list[JournalEntry], error: Exception) -> None:
        kind, run_id = batch[0].kind, outbox.run_id
        path = outbox.journal.refuse(batch)
        log.warning("the tracking store refuses %s of run %s (%s); kept in %s", kind, run_id, reason(error), path)


def batches(entries: list[JournalEntry]) -> Iterator[list[JournalEntry]]:
    """Groups neighbouring entries of one kind into batches that MLflow accepts; one entry always fits."""
    for kind, group in groupby(entries, key=lambda entry: entry.kind):
        batch: list[JournalEntry] = []
        size = 0
        for entry in group:
            if batch and size + len(entry.value) > LIMITS.get(kind, 0):
                yield batch
                batch, size = [], 0
            batch.append(entry)
            size += len(entry.value)
        yield batch


def send(client: MlflowClient, run_id: str, batch: list[JournalEntry]) -> None:
    """Sends one batch of one kind in one request."""
    kind, values = batch[0].kind, [entry.value for entry in batch]
    if kind == "metrics":
        client.log_batch(run_id, metrics=[Metric(*metric) for value in values for metric in value], synchronous=True)
    elif kind == "params":
        client.log_batch(run_id, params=[Param(*item) for value in values for item in value.items()], synchronous=True)
    elif kind == "tags":
        client.log_batch(run_id, tags=[RunTag(*item) for value in values for item in value.items()], synchronous=True)
    elif kind == "end":
        client.set_terminated(run_id, *values[0])
    elif kind in LINEAGE:
        send_lineage(client, run_id, kind, values[0])
    else:
        send_file(client, run_id, kind, values[0])


def send_file(client: MlflowClient, run_id: str, kind: str, value: Any) -> None:
    """Sends a file or a text to the run's artifacts; a file that was deleted meanwhile is a warning."""
    if kind == "text":
        client.log_text(run_id, *value)
    elif Path(value[0]).exists():
        client.log_artifact(run_id, *value)
    else:
        log.warning("%s was deleted before it could be copied to run %s", value[0], run_id)
