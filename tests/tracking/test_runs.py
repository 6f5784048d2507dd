"""Runs in real SQLite stores: written by many, killed and resumed, read back whole; runs that others have left."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow import MlflowClient

from midmask.tracking.opening import OWNER, owner
from midmask.tracking.reading import read_references, read_runs
from midmask.tracking.runs import Tracker
from midmask.tracking.store import save_view
from tests.support.tracking.stores import QUICK, TAGS, history, killed, statuses
from tests.support.waiting import wait_until


def test_a_run_arrives_whole(uri: str, tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    listing.write_text("q1 d1")
    with Tracker(uri, tmp_path, QUICK) as tracker:
        params = {f"p{n}": n for n in range(250)} | {"long": "x" * 9000, "none": None, "db": "postgresql://me:pw@h/d"}
        with tracker.run("sweep", tags={"midmask.job": "sweep"}, params={}) as parent:
            run = tracker.run("trial", tags={"midmask.step": "trial"}, params=params, parent=parent.id)
            run.log({f"m{n}": n / 7 for n in range(2500)}, 3)
            run.log({"odd": float("nan")}, 1)
            run.log_text("see postgresql://me:pw@h/d", "notes/a.txt")
            run.log_file(listing, "runs")
            run.finish("pruned")
            with pytest.raises(RuntimeError, match="finished"):
                run.log({"late": 1.0}, 9)
        with pytest.raises(ValueError, match="metric_key"):
            tracker.run("x", tags={}, params={}).log({"nDCG@10": 1.0}, 0)
    stored = MlflowClient(uri).get_run(run.id)
    metrics = {key: value for key, value in stored.data.metrics.items() if key != "odd"}
    assert metrics == {f"m{n}": n / 7 for n in range(2500)}
    assert stored.data.params["p249"] == "249" and stored.data.params["none"] == "null"
    assert len(stored.data.params["long"]) == 6000 and stored.data.params["long"].endswith("[cut, 9000 characters]")
    assert stored.data.tags["mlflow.parentRunId"] == parent.id
    assert (stored.info.status, stored.data.tags["midmask.status"]) == ("KILLED", "pruned")
    artifacts = tmp_path / "mlartifacts" / run.id / "artifacts"
    assert (artifacts / "runs" / "list.txt").read_text() == "q1 d1"
    assert (artifacts / "notes" / "a.txt").read_text() == "see postgresql://***@h/d"
    assert b":pw@" not in (tmp_path / "mlflow.db").read_bytes()


def test_a_run_starts_when_it_is_asked_for_and_so_not_after_its_end(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        run = tracker.run("evaluation", tags={}, params={})
        run.finish()  # before the thread that carries values has made the run
    stored = MlflowClient(uri).get_run(run.id).info
    assert stored.start_time <= stored.end_time


def test_mlflows_pages_open_on_runs_with_a_column_for_each_measure_of_jobs(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        for step, corpus in (("sweep", "squad"), ("job", "nq"), ("trial", "squad"), ("evaluate", "other")):
            with tracker.run(step, tags={"midmask.step": step}, params={}) as run:
                run.log({f"{corpus}/dev/nDCG_at_10": 0.5, "sweep/rung_share": 0.1}, step=0)
    page = save_view(uri, tmp_path)
    experiment = MlflowClient(uri).get_experiment(tracker.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert page.startswith(f"/#/experiments/{tracker.experiment_id}/runs?") and page.endswith("=midmask")
    view = json.loads(experiment.tags["mlflow.sharedViewState.midmask"])
    columns = json.loads(view["state"])["selectedColumns"]
    measures = [column for column in columns if column.startswith("metrics.")]
    assert measures == ["metrics.`nq/dev/nDCG_at_10`", "metrics.`squad/dev/nDCG_at_10`"], "the newest job first"


def test_where_no_job_has_a_measure_the_columns_are_those_of_evaluations(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        for step in ("benchmark", "evaluate"):
            with tracker.run(step, tags={"midmask.step": step}, params={}) as run:
                run.log({"squad/dev/nDCG_at_10": 0.5} if step == "evaluate" else {}, step=0)
    save_view(uri, tmp_path)
    view = json.loads(MlflowClient(uri).get_experiment(tracker.experiment_id).tags["mlflow.sharedViewState.midmask"])
    assert "metrics.`squad/dev/nDCG_at_10`" in json.loads(view["state"])["selectedColumns"]


def test_four_threads_lose_nothing(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        runs = [tracker.run(f"trial {n}", tags={}, params={}) for n in range(4)]

        def work(n: int) -> None:
            for step in range(100):
                runs[n].log({"own": step + n}, step)
                runs[0].log({f"shared{n}": step}, step)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    for n in range(4):
        assert history(uri, runs[n].id, "own") == [(step, step + n) for step in range(100)]
        assert history(uri, runs[0].id, f"shared{n}") == [(step, step) for step in range(100)]


def test_what_the_store_refuses_costs_a_warning_and_the_rest_goes_on(uri, tmp_path, caplog) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        gone, run = (tracker.run(name, tags={}, params={}) for name in ("gone", "stays"))
        MlflowClient(uri).delete_run(gone.id)
        (tmp_path / "mlartifacts").write_text("a file where a folder should be")
        gone.log({"loss": 1.0}, 0)
        run.log_text("nowhere to go", "a.txt")
        run.log_lacking("loss", lambda steps: 1 / 0)  # type: ignore[arg-type, return-value]  # a trace that is gone
        run.log({"loss": 2.0}, 0)
    assert history(uri, run.id, "loss") == [(0, 2.0)]
    refused = [record.args[0] for record in caplog.records if "refuses" in record.getMessage()]  # type: ignore[index]
    assert sorted(refused) == ["curve", "metrics", "text"]


def test_points_that_a_run_lacks_are_logged_and_those_it_has_are_not(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("a", tags={}, params={}) as run:
        for step in (0, 3, 7):
            run.log({"loss": step / 3, "rate": 1.0}, step)
        points = [(step, {"loss": 100.0 + step, "rate": 2.0}) for step in range(400)]
        run.log_lacking("loss", lambda steps: (point for point in points if point[0] not in steps))
        run.log_lacking("loss", lambda steps: (point for point in points if point[0] not in steps))
    assert history(uri, run.id, "loss") == [(n, n / 3 if n in (0, 3, 7) else 100.0 + n) for n in range(400)]
    assert history(uri, run.id, "rate") == [(n, 1.0 if n in (0, 3, 7) else 2.0) for n in range(400)]


def test_a_failed_run_is_resumed_and_a_finished_one_is_linked(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        with pytest.raises(ZeroDivisionError), tracker.run("a", tags=TAGS, params={"seed": 1, "workers": 2}) as first:
            for step in range(4):
                first.log({"loss": step / 3}, step)
            raise ZeroDivisionError
        assert tracker.find("f00d", step="pretrain").unfinished == (first.id,)
    with Tracker(uri, tmp_path, QUICK) as tracker:
        with tracker.run("a", tags=TAGS, params={"seed": 1, "workers": 8, "new": 0}) as again:
            assert again.id == first.id
            other = tracker.run("b", tags=TAGS, params={})
            assert other.id != first.id, "a run that is being written is not resumed"
            for step in range(2, 6):
                again.log({"loss": 100.0 + step}, step)
        found = tracker.find("f00d", step="pretrain")
        assert found.finished == first.id
        link = tracker.run("a", tags=TAGS, params={}, cached_run=first.id)
        assert tracker.find("f00d", step="pretrain").finished == first.id
        assert tracker.find("f00d", step="evaluate") == tracker.find("beef", step="pretrain")
    assert history(uri, first.id, "loss") == [(0, 0), (1, 1 / 3), (2, 2 / 3), (3, 1), (4, 104.0), (5, 105.0)]
    stored = MlflowClient(uri).get_run(first.id)
    assert (stored.info.status, stored.data.tags["midmask.status"]) == ("FINISHED", "finished")
    assert stored.data.params == {"seed": "1", "workers": "2", "new": "0"}
    cached = MlflowClient(uri).get_run(link.id).data.tags
    assert (cached["midmask.status"], cached["midmask.cached_run"]) == ("cached", first.id)


def test_killed_before_anything_was_sent_and_resumed(uri: str, tmp_path: Path) -> None:
    work = 'run = tracker.run("a", tags=TAGS, params={"seed": 1})\nprint(run.id, flush=True)\n'
    run_id = killed(uri, tmp_path, work + 'for step in range(50):\n    run.log({"loss": step / 3}, step)')
    assert history(uri, run_id, "loss") == [], "nothing may have been sent, or this test shows nothing"
    points = [(step, {"loss": step / 3}) for step in range(60)]
    with Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("a", tags=TAGS, params={"seed": 1}) as run:
        assert run.id == run_id
        for step in range(40, 60):
            run.log({"loss": step / 3}, step)
        run.log_lacking("loss", lambda steps: (point for point in points if point[0] not in steps))
    assert history(uri, run_id, "loss") == [(step, step / 3) for step in range(60)]


def test_reading_pages_through_all_runs_and_creates_nothing(uri, tmp_path, monkeypatch) -> None:
    assert read_runs(f"sqlite:///{tmp_path}/none.db") == [] and not (tmp_path / "none.db").exists()
    assert read_runs(uri) == []
    monkeypatch.setattr("midmask.tracking.reading.PAGE", 3)
    with Tracker(uri, tmp_path, QUICK) as tracker:
        written = {tracker.run(f"r{n}", tags={}, params={}).id for n in range(8)}
    assert {row.run_id for row in read_runs(uri)} == written
    assert all(row.status == "running" and row.ended is None for row in read_runs(uri))


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
    assert read_references([uri]).running == ("left", "left"), "of this host and of another"


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
