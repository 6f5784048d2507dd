"""Runs of jobs that have ended without saying so: told from those of living jobs by their leases, and marked."""

import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.tracking import Tracker, read_runs
from midmask.tracking.lease import EXPIRES_S, LEASE, OWNER, PARENT, Leases, is_dead, lease_tags
from tests.support.tracking.stores import QUICK, TAGS, statuses
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
