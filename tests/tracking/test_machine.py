"""System metrics of runs that last: under MLflow's own names, counted on after a resume, and nothing for short runs."""

import threading
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from midmask.tracking import Tracker
from midmask.tracking.machine import Machine
from tests.support.tracking.stores import QUICK, TAGS, history
from tests.support.waiting import wait_until

CPU, MEMORY = "system/cpu_utilization_percentage", "system/system_memory_usage_percentage"


class Listener:
    """A run that only counts: `samples` while it was open, `first` of them when the first point came."""

    def __init__(self, *, ended: bool = False) -> None:
        self.ended = ended
        self.samples = 0
        self.first: int | None = None
        self.told = threading.Event()

    @property
    def is_open(self) -> bool:
        self.samples += 1
        return not self.ended

    def tag(self, tags: dict[str, str]) -> None: ...

    def log_next(self, values: dict[str, float]) -> None:
        self.first = self.samples if self.first is None else self.first
        self.told.set()


def test_a_run_that_lasts_has_points_that_go_on_after_a_resume(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as MLflow's own settings say."""
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.03")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "2")
    for at_least in (2, 4):
        with Tracker(uri, tmp_path, QUICK) as tracker:
            run = tracker.run("pretrain", tags=TAGS, params={})
            tracker.watch(run)
            wait_until(lambda: len(history(uri, run.id, CPU)) >= at_least)  # noqa: B023
            run.finish("failed")
    steps = [step for step, _ in history(uri, run.id, CPU)]
    assert steps == list(range(len(steps))), "each point once, the second life after the first"
    assert all(0 <= value <= 100 for _, value in history(uri, run.id, CPU))
    assert all(0 < value < 100 for _, value in history(uri, run.id, MEMORY)), "no machine is empty or full"
    assert MlflowClient(uri).get_run(run.id).data.tags["midmask.host"]


def test_only_whole_spans_of_a_run_count() -> None:
    """A run that begins between two points waits for one that is all its own; one that has ended is told nothing."""
    machine, runs, ended = Machine(0.05, 3), [Listener()], Listener(ended=True)
    try:
        machine.watch(ended)
        machine.watch(runs[0])
        for sample in range(2, 8):
            wait_until(lambda: runs[0].samples >= sample)  # noqa: B023
            runs.append(Listener())
            machine.watch(runs[-1])
        for run in runs:
            run.told.wait()
        assert all(run.first is not None and run.first >= 3 for run in runs)
        assert not ended.told.is_set()
    finally:
        machine.close()


def test_nothing_is_left_behind_and_short_runs_have_none(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    threads, before = set(threading.enumerate()), len(psutil.Process().children())
    Machine().watch(Listener())
    assert not set(threading.enumerate()) - threads, "MLflow's own switch turns it off"
    monkeypatch.delenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING")
    with Tracker(uri, tmp_path, QUICK) as tracker:
        with tracker.run("short", tags={}, params={}) as run:
            tracker.watch(run)
        assert len(psutil.Process().children()) == before, "a thread, no process"
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "midmask-machine"])
    assert not [key for key in MlflowClient(uri).get_run(run.id).data.metrics if key.startswith("system/")]
