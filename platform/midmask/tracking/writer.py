"""The process that writes a run: its lease, which shows that it lives, and the load of its machine.

`midmask.owner` names the process that writes the run: host, process id and the time that process started. On its own
host this decides at once. From elsewhere `midmask.lease` decides, the time (seconds since 1970) up to which the owner
was certainly alive: the job's own run renews it every `RENEW_S` seconds, and nested runs share the lease of their
parent as long as the same process writes it. A run whose lease is older than `EXPIRES_S` is dead; hosts must agree on
the time to about a minute. Runs of earlier versions have neither tag and are left alone.

How busy the machine is, CPU, memory and GPUs, is measured by MLflow's own monitors on one thread, under MLflow's names
(`system/cpu_utilization_percentage`), so its "System metrics" tab shows it. The values go through the journal like any
other, where MLflow's own loop gives up at the first answer that fails. As in MLflow, each run counts its points from 0,
and MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL, MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING and
MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false hold. Other nodes of a cluster are not measured: Ray's dashboard is for them.
"""

import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Protocol

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.environment_variables import (
    MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING,
    MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING,
    MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL,
)
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor

from midmask.core.process import machine, start_of

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
    same = [
        run_tags for run_tags in (tags, parent) if run_tags.get(OWNER) == tags[OWNER]
    ]  # a parent may have gone on elsewhere
    return now - max(float(run_tags.get(LEASE, 0)) for run_tags in same) > EXPIRES_S


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


log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between samples."""

SAMPLES = 3
"""Samples whose mean is one point, so that a run of less than half a minute has none and a day's run some 3,000."""


class MetricSink(Protocol):
    """The part of a tracked run that the system monitor writes to."""

    @property
    def is_open(self) -> bool: ...

    def tag(self, tags: dict[str, str]) -> None: ...

    def log_next(self, values: dict[str, float]) -> None: ...


class Machine:
    """Samples the machine for all runs that are watched, from the first one on until it is closed."""

    def __init__(self, interval: float | None = None, samples: int | None = None) -> None:
        self._interval = interval or MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or INTERVAL
        self._samples = samples or MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING.get() or SAMPLES
        self._is_off = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.is_set() and not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get()
        self._seen: dict[MetricSink, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, run: MetricSink) -> None:
        """Gives the run a point after every so many whole samples of its life, until it is finished."""
        if self._is_off:
            return
        with self._lock:
            self._seen[run] = 0
            if self._thread is None:
                self._thread = threading.Thread(target=self._sample_until_ended, name="midmask-machine", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread; a sample that it is taking is not waited for."""
        self._ended.set()

    def _sample_until_ended(self) -> None:
        monitors = _monitors()
        _sample(monitors)  # the first CPU share is of no time at all
        _clear(monitors)
        taken = 0
        while not self._ended.wait(self._interval):
            _sample(monitors)
            taken += 1
            due = self._take_due(last=taken == self._samples)
            if taken == self._samples:
                point = {
                    f"system/{name}": value
                    for monitor in monitors
                    for name, value in monitor.aggregate_metrics().items()
                }
                for run in due:
                    self._tell(run, point)
                _clear(monitors)
                taken = 0

    def _take_due(self, *, last: bool) -> list[MetricSink]:
        """Counts a sample for every open run; with `last`, those that lived through all samples of the point."""
        with self._lock:
            self._seen = {run: count + 1 for run, count in self._seen.items() if run.is_open}
            return [run for run, count in self._seen.items() if last and count >= self._samples]

    def _tell(self, run: MetricSink, point: dict[str, float]) -> None:
        try:
            run.tag({"midmask.host": socket.gethostname()})
            run.log_next(point)
        except RuntimeError:
            log.debug("a run was finished while the machine was looked at")


def _monitors() -> list[BaseMetricsMonitor]:
    """CPU and memory; GPUs where MLflow can see them (it needs nvidia-ml-py or pyrsmi)."""
    monitors: list[BaseMetricsMonitor] = [CPUMonitor()]
    for kind in (GPUMonitor, ROCMMonitor):
        try:
            monitors.append(kind())
        except Exception as error:  # a missing package, driver or device: each library has its own error
            log.debug("%s: %s", kind.__name__, error)
    return monitors


def _sample(monitors: list[BaseMetricsMonitor]) -> None:
    for monitor in monitors:
        monitor.collect_metrics()


def _clear(monitors: list[BaseMetricsMonitor]) -> None:
    for monitor in monitors:
        monitor.clear_metrics()
