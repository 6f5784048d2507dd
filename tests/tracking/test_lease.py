"""Runs of jobs that were killed: told from those of living jobs, marked, and never resumed beside a living writer."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.tracking import Tracker, read_runs
from midmask.tracking.lease import EXPIRES_S, LEASE, OWNER, PARENT, Leases, is_dead, lease_tags
from tests.support.tracking.stores import QUICK, TAGS

ELSEWHERE = "another0host:17:4711"

WRITER = """
import sys, time
from pathlib import Path
from midmask.tracking import Patience, Tracker
tracker = Tracker(sys.argv[1], Path(sys.argv[2]), Patience(flush=0.02))
parent = tracker.run("job", tags={"midmask.fingerprint": "beef", "midmask.step": "job"}, params={})
run = tracker.run("a", tags={"midmask.fingerprint": "f00d", "midmask.step": "pretrain"}, params={}, parent=parent.id)
print(parent.id, run.id, flush=True)
time.sleep(600)
"""


def statuses(uri: str) -> dict[str, tuple[str, str]]:
    """Run id -> MLflow's own status and midmask's."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("midmask")
    runs = client.search_runs([experiment.experiment_id])
    return {run.info.run_id: (run.info.status, run.data.tags["midmask.status"]) for run in runs}


def test_runs_of_a_killed_process_are_marked_by_the_next_job_and_resumed(uri: str, tmp_path: Path) -> None:
    """From another home, where its journal is not seen; while it lives, nobody else touches its runs."""
    home, other = tmp_path / "home", tmp_path / "other"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, uri, home], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    ids = writer.stdout.readline().split()
    with Tracker(uri, other, QUICK) as tracker:
        assert not tracker.run("b", tags=TAGS, params={}).resumed, "its writer lives"
    assert [statuses(uri)[one] for one in ids] == [("RUNNING", "running")] * 2

    writer.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped: its process id is still taken
    with Tracker(uri, other, QUICK) as tracker:
        assert [statuses(uri)[one] for one in ids] == [("KILLED", "killed")] * 2
        with tracker.run("a", tags={**TAGS, "midmask.fingerprint": "beef", "midmask.step": "job"}, params={}) as run:
            assert (run.id, run.resumed) == (ids[0], True)
            assert statuses(uri)[run.id][0] == "RUNNING"
    assert statuses(uri)[ids[0]] == ("FINISHED", "finished")
    writer.wait()
    assert writer.stdout.close() is None


def test_a_run_of_another_host_that_died_just_before_is_marked_when_the_job_ends(uri: str, tmp_path: Path) -> None:
    """Whether its host renews the lease again is not known when the job begins."""
    with Tracker(uri, tmp_path / "home", QUICK) as tracker:
        client = MlflowClient(uri)
        fresh = {**lease_tags(), OWNER: ELSEWHERE, "midmask.status": "running"}
        run = client.create_run(tracker.experiment_id, tags=fresh)
        with tracker.run("b", tags=TAGS, params={}):
            assert statuses(uri)[run.info.run_id] == ("RUNNING", "running")
        client.set_tag(run.info.run_id, LEASE, f"{time.time() - EXPIRES_S - 1:.0f}")
    assert statuses(uri)[run.info.run_id] == ("KILLED", "killed")


def test_a_journal_left_behind_ends_its_run_as_killed(uri: str, tmp_path: Path) -> None:
    """Also where the tags tell nothing, as those of earlier versions do."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, uri, tmp_path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    ids = writer.stdout.readline().split()
    for one in ids:
        MlflowClient(uri).delete_tag(one, OWNER)
    writer.kill()
    writer.communicate()
    Tracker(uri, tmp_path, QUICK).close()
    assert [statuses(uri)[one] for one in ids] == [("KILLED", "killed")] * 2


def test_the_lease_of_another_host_decides_and_nested_runs_share_their_parents(uri: str, tmp_path: Path) -> None:
    client, now = MlflowClient(uri), time.time()
    with Tracker(uri, tmp_path, QUICK) as tracker:
        experiment = tracker.experiment_id

    def run(lease: float, parent: str = "") -> str:
        tags = {"midmask.status": "running", OWNER: ELSEWHERE, LEASE: f"{lease:.0f}"}
        return str(client.create_run(experiment, tags=tags | ({PARENT: parent} if parent else {})).info.run_id)

    old = now - EXPIRES_S - 60
    living, dead = run(now), run(old)
    children = {living: run(old, living), dead: run(old, dead)}
    Tracker(uri, tmp_path, QUICK).close()
    found = statuses(uri)
    assert {found[living][0], found[children[living]][0]} == {"RUNNING"}
    assert {found[dead], found[children[dead]]} == {("KILLED", "killed")}


def test_an_interrupt_ends_every_open_run_as_killed_and_an_error_as_failed(uri: str, tmp_path: Path) -> None:
    ids = {}
    for kind in (KeyboardInterrupt, ZeroDivisionError):
        with pytest.raises(kind), Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("a", tags={}, params={}) as run:
            ids[kind] = {run.id, tracker.run("nested", tags={}, params={}, parent=run.id).id}
            raise kind
    found = statuses(uri)
    assert {found[one] for one in ids[KeyboardInterrupt]} == {("KILLED", "killed")}
    assert {found[one] for one in ids[ZeroDivisionError]} == {("FAILED", "failed")}
    assert {row.status for row in read_runs(uri)} == {"killed", "failed"}


class Held:
    """A run that counts how often its lease was renewed, and ends after the third time."""

    def __init__(self) -> None:
        self.leases: list[float] = []
        self.ended = threading.Event()

    @property
    def is_open(self) -> bool:
        return not self.ended.is_set()

    def tag(self, tags: dict[str, str]) -> None:
        self.leases.append(float(tags[LEASE]))
        if len(self.leases) == 3:
            self.ended.set()


def test_a_nested_run_of_a_dead_job_is_marked_although_another_process_goes_on_with_its_parent(
    uri: str, tmp_path: Path
) -> None:
    client, now = MlflowClient(uri), time.time()
    with Tracker(uri, tmp_path, QUICK) as tracker:
        experiment = tracker.experiment_id
    running = {"midmask.status": "running"}
    resumed = {**running, OWNER: "third0host:18:4712", LEASE: f"{now:.0f}"}
    parent = client.create_run(experiment, tags=resumed).info.run_id
    orphan = {**running, OWNER: ELSEWHERE, LEASE: f"{now - EXPIRES_S - 60:.0f}", PARENT: parent}
    nested = client.create_run(experiment, tags=orphan).info.run_id
    Tracker(uri, tmp_path, QUICK).close()
    assert statuses(uri)[nested] == ("KILLED", "killed") and statuses(uri)[parent] == ("RUNNING", "running")


def test_leases_of_open_runs_are_renewed() -> None:
    leases, run, began = Leases(interval=0.01), Held(), time.time()
    leases.hold(run)
    run.ended.wait()
    leases.close()
    assert len(run.leases) == 3 and min(run.leases) >= began - 1


def test_this_process_lives_and_one_with_its_id_that_began_at_another_time_does_not() -> None:
    own = lease_tags()
    assert not is_dead(own, {}, time.time() + 1e6), "on its own host the process decides, not the time"
    host, pid, start = own[OWNER].split(":")
    assert is_dead({**own, OWNER: f"{host}:{pid}:{int(start) + 1}"}, {}, time.time())
    assert not is_dead({}, {}, time.time())
