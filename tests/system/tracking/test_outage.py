"""MLflow's own server, killed and started again, PostgreSQL under it, and processes that track, several or killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
from tests.support.tracking.server import POSTGRES_PASSWORD, Server, postgres
from tests.support.tracking.stores import MODEL, QUICK, SQUAD, TAGS, history, killed, links, models, statuses

LONG = replace(QUICK, answer=240, close=240)
"""A server may start slowly."""
BRIEF = Patience(answer=60, close=0.2, flush=0.02, retry=0.05)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    server.wait()
    yield server
    server.stop()


def test_a_server_that_is_killed_costs_no_value(server: Server, tmp_path: Path) -> None:
    with Tracker(server.uri, tmp_path, LONG) as tracker:
        run = tracker.run("a", tags=TAGS, params={"seed": 1})
        for step in range(90):
            if step == 30:
                assert run.id
                server.stop()
            if step == 45:
                run.log_input_model(MODEL)
            if step == 60:
                server.start()
            run.log({"loss": step / 3, "odd": float("inf") if step % 2 else float("nan")}, step)
        (tmp_path / "a.txt").write_text("kept")
        run.log_file(tmp_path / "a.txt", "files")
        run.log_inputs([SQUAD])
        run.log_output_model(MODEL, 60)
        child = tracker.run("b", tags={}, params={}, parent=run.id)
        child.finish()
        run.finish()
    assert history(server.uri, run.id, "loss") == [(step, step / 3) for step in range(90)]
    assert len(history(server.uri, run.id, "odd")) == 90
    assert list((tmp_path / "art").rglob("a.txt"))
    (model,) = models(server.uri)
    assert links(server.uri, run.id) == {
        "datasets": [("squad", "c0ffee123456", "pretrain")], "used": [model.model_id], "made": [(model.model_id, 60)],
    }  # fmt: skip
    assert {row.run_id: row.status for row in read_runs(server.uri)} == {run.id: "finished", child.id: "finished"}

    server.stop()
    with pytest.raises(UserError, match="start the server"):
        read_runs(server.uri)
    with pytest.raises(UserError, match="start the server"):
        Tracker(server.uri, tmp_path, replace(BRIEF, answer=0.2))


def test_postgresql_that_ends_under_a_job_does_not_end_the_job(tmp_path, caplog) -> None:
    with postgres() as address:
        uri = address.replace("postgresql://postgres@", f"postgresql://postgres:{POSTGRES_PASSWORD}@")
        tracker = Tracker(uri, tmp_path, BRIEF)
        run = tracker.run("a", tags=TAGS, params={})
        run.log({"loss": 1.0}, 0)
        assert tracker.find("f00d", step="pretrain").unfinished == (run.id,)
        assert history(uri, run.id, "loss") == [(0, 1.0)]
    for step in range(1, 20):
        run.log({"loss": 1.0}, step)
    run.finish()
    tracker.close()
    assert "the same command" in caplog.text and POSTGRES_PASSWORD not in caplog.text


JOB = {"midmask.fingerprint": "beef", "midmask.step": "job"}
WRITER = """
import sys, time
from pathlib import Path
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
from tests.support.tracking.stores import TAGS
tracker = Tracker(sys.argv[1], Path(sys.argv[2]), Patience(flush=0.02))
parent = tracker.run("job", tags={"midmask.fingerprint": "beef", "midmask.step": "job"}, params={})
run = tracker.run("a", tags=TAGS, params={}, parent=parent.id)
print(parent.id, run.id, flush=True)
time.sleep(600)
"""


def test_processes_that_open_a_fresh_file_at_once_all_write(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/fresh.db"
    script = """
import sys
from pathlib import Path
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
uri, home, number = sys.argv[1:]
with Tracker(uri, Path(home), Patience(flush=0.02)) as tracker, tracker.run(f"run {number}", tags={}, params={}) as run:
    run.log({"loss": float(number)}, 0)
"""
    started = [subprocess.Popen([sys.executable, "-c", script, uri, str(tmp_path), str(n)]) for n in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert sorted(row.metrics["loss"] for row in read_runs(uri)) == [0.0, 1.0, 2.0]


def test_runs_of_a_killed_process_are_marked_by_the_next_job_and_resumed(uri: str, tmp_path: Path) -> None:
    """From another home; while it lives, nobody else touches its runs."""
    home, other = tmp_path / "home", tmp_path / "other"
    with subprocess.Popen([sys.executable, "-c", WRITER, uri, home], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        ids = writer.stdout.readline().split()
        with Tracker(uri, other, QUICK) as tracker:
            assert tracker.run("b", tags=TAGS, params={}).id not in ids, "its writer lives"
        assert [statuses(uri)[one] for one in ids] == [("RUNNING", "running")] * 2
        writer.kill()
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped: its process id is still taken
        with Tracker(uri, other, QUICK) as tracker:
            assert [statuses(uri)[one] for one in ids] == [("KILLED", "killed")] * 2
            with tracker.run("a", tags={**TAGS, **JOB}, params={}) as run:
                assert run.id == ids[0]
                assert statuses(uri)[run.id][0] == "RUNNING"
        assert statuses(uri)[ids[0]] == ("FINISHED", "finished")


def test_what_a_driver_that_was_killed_had_not_sent_is_logged_again(uri: str, tmp_path: Path) -> None:
    work = """
run = tracker.run("finetune", tags=TAGS, params={})
run.log_inputs([SQUAD])
run.log_output_model(MODEL, 500)
print(run.id, flush=True)
"""
    run_id = killed(uri, tmp_path, work)
    assert models(uri) == [], "nothing may have been sent, or this test shows nothing"
    with Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("finetune", tags=TAGS, params={}) as again:
        assert again.id == run_id
        again.log_inputs([SQUAD])
        again.log_output_model(MODEL, 500)
    (model,) = models(uri)
    assert links(uri, run_id) == {
        **{"datasets": [("squad", "c0ffee123456", "pretrain")], "used": []},
        "made": [(model.model_id, 500)],
    }


def test_neither_torch_nor_ray_is_imported() -> None:
    check = "import sys, midmask.tracking.runs, midmask.leaderboard.rows; print({'torch', 'ray'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout == "set()\n"
