"""How busy the driver's machine is while runs go on: MLflow's own monitors of CPU, memory and GPUs, on one thread.

The values have MLflow's names (`system/cpu_utilization_percentage`), so its "System metrics" tab shows them; they go
through the journal like any other, where MLflow's own loop gives up at the first answer that fails. As in MLflow, each
run counts its points from 0, and MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL, MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING
and MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false hold. Other nodes of a cluster are not measured: Ray's dashboard is for
them.
"""

import logging
import socket
import threading
from typing import Protocol

from mlflow.environment_variables import (
    MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING,
    MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING,
    MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL,
)
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor

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
                point = {f"system/{name}": value for one in monitors for name, value in one.aggregate_metrics().items()}
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
    found: list[BaseMetricsMonitor] = [CPUMonitor()]
    for kind in (GPUMonitor, ROCMMonitor):
        try:
            found.append(kind())
        except Exception as error:  # a missing package, driver or device: each library has its own error
            log.debug("%s: %s", kind.__name__, error)
    return found


def _sample(monitors: list[BaseMetricsMonitor]) -> None:
    for monitor in monitors:
        monitor.collect_metrics()


def _clear(monitors: list[BaseMetricsMonitor]) -> None:
    for monitor in monitors:
        monitor.clear_metrics()
