"""Finds the tracked runs that a living process still writes, by two tags of every run.

`midmask.owner` names the process that writes the run: host, process id and the time that process started. On its own
host this decides at once. From elsewhere `midmask.lease` decides, the time (seconds since 1970) up to which the owner
was certainly alive: the job's own run renews it every `RENEW_S` seconds, and nested runs share the lease of their
parent as long as the same process writes it. A run whose lease is older than `EXPIRES_S` is dead; hosts must agree on
the time to about a minute.

Runs of earlier versions have neither tag and are left alone.
"""

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Protocol

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType

from midmask.processes import machine, start_of

OWNER = "midmask.owner"
LEASE = "midmask.lease"
PARENT = "mlflow.parentRunId"

RENEW_S = 30.0
EXPIRES_S = 150.0


def lease_tags() -> dict[str, str]:
    """The tags of a run that this process begins to write."""
    return {OWNER: f"{_host()}:{os.getpid()}:{start_of(os.getpid())}", **lease_tag()}


def lease_tag() -> dict[str, str]:
    return {LEASE: f"{time.time():.0f}"}


def is_dead(tags: Mapping[str, str], parent: Mapping[str, str], now: float) -> bool:
    """Whether the process that writes a run has ended, as far as this host can tell.

    Args:
        parent: tags of the run's parent, empty if it has none.
        now: seconds since 1970.
    """
    if OWNER not in tags:
        return False
    host, pid, start = tags[OWNER].split(":")
    if host == _host():
        return start_of(int(pid)) != start
    same = [one for one in (tags, parent) if one.get(OWNER) == tags[OWNER]]  # a parent may have gone on elsewhere
    return now - max(float(one.get(LEASE, 0)) for one in same) > EXPIRES_S


@cache
def _host() -> str:
    """This machine since its last start, and the namespace that its process ids are of, as a short name."""
    return hashlib.sha256(f"{socket.gethostname()}\n{machine()}".encode()).hexdigest()[:12]


def close_dead_runs(client: MlflowClient, experiment_id: str) -> int:
    """Marks as killed what MLflow shows as running although the process that wrote it has ended; how many."""
    running, now = (
        list(_find_running(client, experiment_id)),
        time.time(),
    )  # marking moves the pages, so all are read first
    parents = _parents(client, experiment_id, running)
    dead = [run.info.run_id for run in running if is_dead(run.data.tags, _parent_tags(run, parents), now)]
    for run_id in dead:
        client.set_tag(run_id, "midmask.status", "killed")
        client.set_terminated(run_id, "KILLED")
    return len(dead)


def is_written(client: MlflowClient, experiment_id: str, run_id: str) -> bool:
    """Whether a living process writes this run; False for a run of an earlier version, which lacks the tags."""
    run = client.get_run(run_id)
    if run.info.status != "RUNNING" or OWNER not in run.data.tags:
        return False
    return not is_dead(run.data.tags, _parent_tags(run, _parents(client, experiment_id, [run])), time.time())


def _parents(client: MlflowClient, experiment_id: str, runs: list[Run]) -> dict[str, Mapping[str, str]]:
    """Tags of the runs' parents, by run id; a parent that was purged is missing."""
    names = sorted({run.data.tags[PARENT] for run in runs if PARENT in run.data.tags})
    if not names:
        return {}
    query = f"attributes.run_id IN ({', '.join(map(repr, names))})"
    return {run.info.run_id: run.data.tags for run in client.search_runs([experiment_id], query, ViewType.ALL)}


def _parent_tags(run: Run, parents: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    return parents.get(run.data.tags.get(PARENT, ""), {})


def _find_running(client: MlflowClient, experiment_id: str) -> Iterator[Run]:
    token = None
    while True:
        page = client.search_runs([experiment_id], "attributes.status = 'RUNNING'", page_token=token)
        yield from page
        token = page.token
        if not token:
            return


class Leased(Protocol):
    """The part of a tracked run that renews its lease."""

    @property
    def is_open(self) -> bool: ...

    def tag(self, tags: dict[str, str]) -> None: ...


class Leases:
    """Renews the leases of open runs on a thread, until it is closed."""

    def __init__(self, interval: float = RENEW_S) -> None:
        self._interval = interval
        self._held: list[Leased] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, name="midmask-lease", daemon=True)
        self._thread.start()

    def hold(self, run: Leased) -> None:
        with self._lock:
            self._held.append(run)

    def close(self) -> None:
        self._ended.set()

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(self._interval):
            with self._lock:
                self._held = [run for run in self._held if run.is_open]
                held = list(self._held)
            for run in held:
                with contextlib.suppress(RuntimeError):  # finished meanwhile
                    run.tag(lease_tag())
