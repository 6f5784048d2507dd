"""A server that fails in the ways servers fail, in the middle of a job and at its end: every value is there once."""

import logging
import os
import socket
import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow.server.handlers
import pytest
from mlflow import MlflowClient
from mlflow.server import app
from werkzeug.serving import WSGIRequestHandler, make_server

from midmask.errors import UserError
from midmask.tracking.opening import owner
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import TrackedRun, Tracker
from midmask.tracking.store import Patience
from tests.support.tracking.stores import MODEL, QUICK, SQUAD, TAGS, history, links, models
from tests.support.waiting import wait_until

SOON = Patience(answer=60, close=0.3, flush=0.01, retry=0.02, longest_retry=0.05)
FAULTS = ["401", "403", "500", "502", "silent", "lost", "stopped"]
STEPS = [(step, step / 3) for step in range(30)]
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
HOST, PID, START = owner().split(":")
BODY = b'{"error_code": "INTERNAL_ERROR", "message": "a fault"}'


class FaultyServer:
    """MLflow's own server in this process. `fault`: none, a status that is answered in place of MLflow, `silent` (no
    answer until the fault ends), `lost` (MLflow does what it is asked, and the connection ends without an answer) or
    `stopped` (nobody listens).
    """

    def __init__(self) -> None:
        self.fault = ""
        self.ended = threading.Event()
        self.start(0)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def start(self, port: int) -> None:
        self.server = make_server("127.0.0.1", port, self._answer, threaded=True, request_handler=_Quiet)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def fail(self, fault: str) -> None:
        self.ended.clear()
        self.fault = fault
        if fault == "silent":
            os.environ[TIMEOUT] = "2"
        if fault == "stopped":
            self.stop()

    def mend(self) -> None:
        if self.fault == "stopped":
            self.start(self.server.server_port)
        self.fault = ""
        os.environ[TIMEOUT] = "60"
        self.ended.set()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        fault = self.fault
        if fault == "silent":
            self.ended.wait()
        elif fault == "lost":
            list(app.wsgi_app(environ, lambda *_: None))
        if fault in ("silent", "lost", "stopped"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError
        if fault:
            start_response(f"{fault} fault", [("Content-Type", "application/json")])
            return [BODY]
        return app.wsgi_app(environ, start_response)


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None: ...

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None: ...


@pytest.fixture
def server(uri: str, tmp_path: Path) -> Iterator[FaultyServer]:
    """Over the test's SQLite store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlflow.server.handlers, "_tracking_store", None)
        patch.setattr(mlflow.tracking._tracking_service.utils, "_tracking_uri", None)  # a server sets it for good
        patch.setenv(TIMEOUT, "60")
        patch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
        mlflow.server.handlers._get_tracking_store(uri, f"file://{tmp_path}/art")
        server = FaultyServer()
        yield server
        server.mend()
        server.stop()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    names = ("midmask.tracking.sending", "midmask.tracking.runs")
    own = [record for record in caplog.records if record.name.startswith(names)]
    return [record.getMessage() for record in own if record.levelno >= logging.WARNING]


def log_all(run: TrackedRun, folder: Path) -> None:
    """What is logged besides curves."""
    (folder / "a.txt").write_text("kept")
    run.log_file(folder / "a.txt", "files")
    run.log_inputs([SQUAD])
    run.log_output_model(MODEL, 60)
    run.log({"squad/dev/RR": 0.5}, 0)


def check_all(uri: str, run_id: str, folder: Path) -> None:
    """That all of it has arrived, once."""
    assert history(uri, run_id, "loss") == STEPS
    assert history(uri, run_id, "squad/dev/RR") == [(0, 0.5)]
    (model,) = models(uri)
    made = [(model.model_id, 60)]
    assert links(uri, run_id) == {"datasets": [("squad", "c0ffee123456", "pretrain")], "used": [], "made": made}
    assert len(list((folder / "art").rglob("a.txt"))) == 1
    assert MlflowClient(uri).get_run(run_id).info.status == "FINISHED"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_middle_costs_one_warning_and_no_value(fault, server, uri, tmp_path, caplog) -> None:
    with Tracker(server.uri, tmp_path, replace(QUICK, retry=30)) as sent, sent.run("job", tags={}, params={}) as job:
        run = sent.run("a", tags=TAGS, params={"seed": 1}, parent=job.id)
        assert run.id
        for step, loss in STEPS:
            if step == 10:
                server.fail(fault)
            run.log({"loss": loss}, step)
        log_all(run, tmp_path)
        wait_until(lambda: bool(warnings(caplog)))
        nested = sent.run("b", tags={}, params={}, parent=job.id)  # made when the server is back
        nested.log({"loss": 1.0}, 0)
        assert sent.find("f00d", step="pretrain").unfinished == (), "nobody waits"
        for ended in (run, nested):
            ended.finish()
        server.mend()
    (warning,) = warnings(caplog)
    assert "does not answer" in warning and "the job goes on" in warning
    check_all(uri, run.id, tmp_path)
    assert history(uri, nested.id, "loss") == [(0, 1.0)]
    assert {row.name: row.status for row in read_runs(uri)} == dict.fromkeys(("job", "a", "b"), "finished")


@pytest.mark.parametrize("fault", ["401", "lost", "silent", "stopped"])
def test_what_a_job_could_not_send_is_logged_by_the_same_job_again(
    fault: str, server: FaultyServer, uri: str, tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second life computes nothing: it reads the curve from the trace, and logs the rest from the artifacts."""
    monkeypatch.setattr("midmask.tracking.runs.owner", lambda: f"{HOST}:{PID}:{int(START) + 1}")  # a process that ends
    with Tracker(server.uri, tmp_path, SOON) as tracker:
        run = tracker.run("a", tags=TAGS, params={"seed": 1})
        assert run.id
        for step, loss in STEPS:
            if step == 10:
                server.fail(fault)
            run.log({"loss": loss}, step)
        log_all(run, tmp_path)
        run.finish()
        late = tracker.run("late", tags={"midmask.fingerprint": "1a7e", "midmask.step": "encode"}, params={"a": 2})
        late.finish()
    assert any("2 run(s) have not reached" in text and "the same command" in text for text in warnings(caplog))
    with pytest.raises(UserError):
        Tracker(server.uri, tmp_path, replace(SOON, answer=0.1))
    server.mend()
    monkeypatch.undo()
    with Tracker(server.uri, tmp_path, QUICK) as tracker:
        assert tracker.find("f00d", step="pretrain").unfinished == (run.id,)
        with tracker.run("a", tags=TAGS, params={"seed": 1}) as again:
            assert again.id == run.id
            again.log_lacking("loss", lambda known: ((at, {"loss": loss}) for at, loss in STEPS if at not in known))
            log_all(again, tmp_path)
    check_all(uri, run.id, tmp_path)


def test_a_step_that_was_finished_before_is_only_linked_even_if_nobody_could_ask(server, uri, tmp_path, caplog) -> None:
    with Tracker(server.uri, tmp_path, QUICK) as tracker:
        with tracker.run("a", tags=TAGS, params={}) as first:
            first.log({"loss": 1.0}, 0)
        other = tracker.run("other", tags={}, params={})
        assert other.id
        server.fail("500")
        other.log({"loss": 1.0}, 0)
        wait_until(lambda: bool(warnings(caplog)))
        assert tracker.find("f00d", step="pretrain").finished is None
        with tracker.run("again", tags=TAGS, params={}) as again:
            again.log({"loss": 1.0}, 0)
        server.mend()
        wait_until(lambda: tracker.find("f00d", step="pretrain").finished == first.id)
    tags = MlflowClient(uri).get_run(again.id).data.tags
    assert (tags["midmask.status"], tags["midmask.cached_run"]) == ("cached", first.id)


def test_a_full_queue_drops_reports_that_the_trace_then_gives_back(server, uri, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("midmask.tracking.sending.MOST_WAITING", 5)

    def trace(known: Collection[int]) -> Iterator[tuple[int, dict[str, float]]]:
        return ((step, {"loss": loss, "rate": 1.0}) for step, loss in STEPS if step not in known)

    with Tracker(server.uri, tmp_path, QUICK) as tracker:
        run = tracker.run("a", tags=TAGS, params={})
        other = tracker.run("b", tags={}, params={})
        assert run.id and other.id
        server.fail("500")
        for step, loss in STEPS:
            run.log({"loss": loss, "rate": 1.0}, step)
        server.mend()
        run.log_lacking("loss", trace)
        run.finish()
    assert history(uri, run.id, "loss") == STEPS
    assert history(uri, run.id, "rate") == [(step, 1.0) for step, _ in STEPS]
