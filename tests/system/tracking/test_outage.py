"""An MLflow server that goes away and comes back."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.tracking.outbox import find_left_behind
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
from tests.support.tracking.server import Server
from tests.support.tracking.stores import MODEL, QUICK, SQUAD, TAGS, history, links, models


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    server.wait()
    yield server
    server.stop()


def test_a_server_away_for_a_while_costs_one_warning(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="midmask")
    with Tracker(server.uri, tmp_path, replace(QUICK, answer=240)) as tracker:  # a server may start slowly
        run = tracker.run("a", tags=TAGS, params={"seed": 1})
        for step in range(90):
            if step == 30:
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
        child = tracker.run("b", tags={}, params={}, parent=run.id)  # waits until the server is back
        child.finish()
        run.finish()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 2, warnings  # of the sender, and of the call that could not go on without an answer
    assert any("mlflow-pending" in text for text in warnings)
    assert history(server.uri, run.id, "loss") == [(step, step / 3) for step in range(90)]
    assert len(history(server.uri, run.id, "odd")) == 90
    assert list((tmp_path / "art").rglob("a.txt"))
    (model,) = models(server.uri)
    assert links(server.uri, run.id) == {
        "datasets": [("squad", "c0ffee123456", "pretrain")], "used": [model.model_id], "made": [(model.model_id, 60)],
    }  # fmt: skip
    assert {row.run_id: row.status for row in read_runs(server.uri)} == {run.id: "finished", child.id: "finished"}

    # away at the end: what is left waits on disk, and the next tracker sends it first
    with Tracker(server.uri, tmp_path, Patience(answer=60, close=0.2, flush=0.02, retry=0.05)) as tracker:
        last = tracker.run("c", tags={"midmask.fingerprint": "beef", "midmask.step": "evaluate"}, params={})
        server.stop()
        last.log({"loss": 1.5}, 7)
        last.finish()
    assert "they are kept in" in caplog.text
    with pytest.raises(UserError, match="start the server"):
        read_runs(server.uri)
    with pytest.raises(UserError, match="start the server"):
        Tracker(server.uri, tmp_path, Patience(answer=0.2, retry=0.05))
    server.start()
    server.wait()
    with Tracker(server.uri, tmp_path, QUICK) as tracker:
        assert tracker.find("beef", step="evaluate").finished == last.id
    assert history(server.uri, last.id, "loss") == [(7, 1.5)]
    assert find_left_behind(tmp_path, server.uri) == []
