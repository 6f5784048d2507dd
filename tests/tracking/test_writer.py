"""Leases of runs, which tell those of living jobs from those of dead ones, and the system metrics of runs that last."""

import threading
import time
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from midmask.tracking import Tracker, read_runs
from midmask.tracking.writer import EXPIRES_S, LEASE, OWNER, PARENT, Leases, Machine, is_dead, lease_tags
from tests.support.tracking.stores import QUICK, TAGS, history, statuses
from tests.support.waiting import wait_until

ELSEWHERE, THIRD = "another0host:17:4711", "third0host:18:4712"
RUNNING, KILLED = ("RUNNING", "running"), ("KILLED", "killed")


def test_a_run_of_another_host_that_died_just_before_is_marked_when_the_job_ends(uri: str, tmp_path: Path) -> None:
    """Whether its host renews the lease again is not known when the job begins."""
    with Tracker(uri, tmp_path / "home", QUICK) as tracker:
        client = MlflowClient(uri)
        fresh = {**lease_tags(), OWNER: ELSEWHERE, "midmask.status": "running"}
        run = client.create_run(tracker.experiment_id, tags=fresh)
        with tracker.run("b", tags=TAGS, params={}):
            assert statuses(uri)[run.info.run_id] == RUNNING
        client.set_tag(run.info.run_id, LEASE, f"{time.time() - EXPIRES_S - 1:.0f}")
    assert statuses(uri)[run.info.run_id] == KILLED


def test_the_lease_of_another_host_decides_and_nested_runs_share_that_of_their_own_jobs(
    uri: str, tmp_path: Path
) -> None:
    """Not that of another job which goes on with their parent."""
    client, now = MlflowClient(uri), time.time()
    with Tracker(uri, tmp_path, QUICK) as tracker:
        experiment = tracker.experiment_id

    def run(lease: float, parent: str = "", owner: str = ELSEWHERE) -> str:
        tags = {"midmask.status": "running", OWNER: owner, LEASE: f"{lease:.0f}"}
        return str(client.create_run(experiment, tags=tags | ({PARENT: parent} if parent else {})).info.run_id)

    old = now - EXPIRES_S - 60
    living, dead, resumed = run(now), run(old), run(now, owner=THIRD)
    expected = {living: RUNNING, dead: KILLED, resumed: RUNNING}
    expected |= {run(old, living): RUNNING, run(old, dead): KILLED, run(old, resumed): KILLED}
    Tracker(uri, tmp_path, QUICK).close()
    assert statuses(uri) == expected


def test_an_interrupt_ends_every_open_run_as_killed_and_an_error_as_failed(uri: str, tmp_path: Path) -> None:
    expected = {}
    for kind, status in ((KeyboardInterrupt, KILLED), (ZeroDivisionError, ("FAILED", "failed"))):
        with pytest.raises(kind), Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("a", tags={}, params={}) as run:
            nested = tracker.run("nested", tags={}, params={}, parent=run.id)
            expected |= {run.id: status, nested.id: status}
            raise kind
    assert statuses(uri) == expected
    assert {row.status for row in read_runs(uri)} == {"killed", "failed"}


class Held:
    """A run that keeps the times of its lease, and ends after the third."""

    def __init__(self) -> None:
        self.leases: list[float] = []

    @property
    def is_open(self) -> bool:
        return len(self.leases) < 3

    def tag(self, tags: dict[str, str]) -> None:
        self.leases.append(float(tags[LEASE]))


def test_leases_of_open_runs_are_renewed() -> None:
    leases, run, began = Leases(interval=0.01), Held(), time.time()
    leases.hold(run)
    wait_until(lambda: not run.is_open)
    leases.close()
    assert len(run.leases) == 3 and min(run.leases) >= began - 1


def test_this_process_lives_and_one_with_its_id_that_began_at_another_time_does_not() -> None:
    own = lease_tags()
    assert not is_dead(own, {}, time.time() + 1e6), "on its own host the process decides, not the time"
    host, pid, start = own[OWNER].split(":")
    assert is_dead({**own, OWNER: f"{host}:{pid}:{int(start) + 1}"}, {}, time.time())
    assert not is_dead({}, {}, time.time())


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
