"""Runs of processes that live, were killed, or are of other hosts; and how busy the machine of a run that lasts is."""

import os
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.tracking.opening import OWNER, owner
from midmask.tracking.reading import read_references, read_runs
from midmask.tracking.runs import Tracker
from tests.support.tracking.stores import QUICK, TAGS, history, statuses
from tests.support.waiting import wait_until

RUNNING, KILLED, FINISHED = ("RUNNING", "running"), ("KILLED", "killed"), ("FINISHED", "finished")
HOST, PID, START = owner().split(":")
DEAD = f"{HOST}:{PID}:{int(START) + 1}"
ELSEWHERE = "another0host:17:4711"


def leave(uri: str, tracker: Tracker, tags: dict[str, str]) -> str:
    """A running run with these tags."""
    all_tags = {"midmask.status": "running", **tags}
    return str(MlflowClient(uri).create_run(tracker.experiment_id, tags=all_tags, run_name="left").info.run_id)


def test_the_next_job_of_a_host_marks_its_dead_runs_and_touches_no_others(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        expected = {leave(uri, tracker, {OWNER: ELSEWHERE}): RUNNING, leave(uri, tracker, {OWNER: DEAD}): KILLED}
        expected |= {leave(uri, tracker, {OWNER: owner()}): RUNNING, leave(uri, tracker, {}): RUNNING}
    Tracker(uri, tmp_path, QUICK).close()
    assert statuses(uri) == expected
    assert read_references(uri, tmp_path).running == ("left", "left"), "of this host and of another"


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_run_of_another_host_is_killed_when_its_step_is_finished_here(status: str, uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        both = (TAGS, {**TAGS, "midmask.step": "x"})
        left, other = (leave(uri, tracker, {OWNER: ELSEWHERE, **tags}) for tags in both)
        run = tracker.run("a", tags=TAGS, params={})
        assert run.id != left, "it may live"
        assert statuses(uri)[left] == RUNNING
        run.finish(status)
    assert (statuses(uri)[left], statuses(uri)[other]) == (KILLED if status == "finished" else RUNNING, RUNNING)


def test_an_interrupt_ends_every_open_run_as_killed_and_an_error_as_failed(uri: str, tmp_path: Path) -> None:
    expected = {}
    for kind, status in ((KeyboardInterrupt, KILLED), (ZeroDivisionError, ("FAILED", "failed"))):
        with pytest.raises(kind), Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("a", tags={}, params={}) as run:
            nested = tracker.run("nested", tags={}, params={}, parent=run.id)
            expected |= {run.id: status, nested.id: status}
            raise kind
    assert statuses(uri) == expected
    assert {row.status for row in read_runs(uri)} == {"killed", "failed"}


CPU, MEMORY = "system/cpu_utilization_percentage", "system/system_memory_usage_percentage"


def test_a_run_that_lasts_has_points_that_go_on_after_a_resume(uri, tmp_path, monkeypatch) -> None:
    """As often as MLflow's own settings say."""
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.03")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "2")
    for at_least in (2, 4):
        with Tracker(uri, tmp_path, QUICK) as tracker:
            run = tracker.run("pretrain", tags=TAGS, params={})
            run.watch()
            wait_until(lambda: len(history(uri, run.id, CPU)) >= at_least)  # noqa: B023
            run.finish("failed")
    steps = [step for step, _ in history(uri, run.id, CPU)]
    assert steps == list(range(len(steps))), "each point once, the second life after the first"
    assert all(0 <= value <= 100 for _, value in history(uri, run.id, CPU))
    assert all(0 < value < 100 for _, value in history(uri, run.id, MEMORY)), "no machine is empty or full"
    assert MlflowClient(uri).get_run(run.id).data.tags["midmask.host"]


def test_mlflows_own_switch_turns_the_machine_off(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.01")
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    with Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("a", tags={}, params={}) as run:
        run.watch()
        tracker.find("none", step="none")  # waits until all is sent
        os.sched_yield()
    assert not [key for key in MlflowClient(uri).get_run(run.id).data.metrics if key.startswith("system/")]
