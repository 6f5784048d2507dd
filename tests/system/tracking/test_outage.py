"""MLflow's own server, killed and started again, and PostgreSQL under it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from midmask.tracking.sending import unsent_files
from midmask.tracking.store import Patience
from tests.support.postgres import PASSWORD, postgres
from tests.support.tracking.server import Server
from tests.support.tracking.stores import MODEL, QUICK, SQUAD, TAGS, history, links, models

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

    with Tracker(server.uri, tmp_path, BRIEF) as tracker:
        last = tracker.run("c", tags={"midmask.fingerprint": "beef", "midmask.step": "evaluate"}, params={})
        assert last.id
        server.stop()
        last.log({"loss": 1.5}, 7)
        last.finish()
    assert len(unsent_files(tmp_path, server.uri)) == 1
    with pytest.raises(UserError, match="start the server"):
        read_runs(server.uri)
    with pytest.raises(UserError, match="start the server"):
        Tracker(server.uri, tmp_path, replace(BRIEF, answer=0.2))
    server.start()
    server.wait()
    with Tracker(server.uri, tmp_path, LONG) as tracker:
        assert tracker.find("beef", step="evaluate").finished == last.id
    assert history(server.uri, last.id, "loss") == [(7, 1.5)] and not unsent_files(tmp_path, server.uri)


def test_postgresql_that_ends_under_a_job_does_not_end_the_job(tmp_path, caplog) -> None:
    with postgres() as address:
        uri = address.replace("postgresql://postgres@", f"postgresql://postgres:{PASSWORD}@")
        tracker = Tracker(uri, tmp_path, BRIEF)
        run = tracker.run("a", tags=TAGS, params={})
        run.log({"loss": 1.0}, 0)
        assert tracker.find("f00d", step="pretrain").unfinished == (run.id,)
        assert history(uri, run.id, "loss") == [(0, 1.0)]
    for step in range(1, 20):
        run.log({"loss": 1.0}, step)
    run.finish()
    tracker.close()
    assert len(unsent_files(tmp_path, uri)) == 1
    assert "midmask doctor --resend" in caplog.text and PASSWORD not in caplog.text
    assert not any(PASSWORD in file.read_text() for file in unsent_files(tmp_path, uri))
