"""Tracking against real stores: SQLite files, and an MLflow server that goes away and comes back."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.utils.validation import _validate_metric_name

from midmask.errors import UserError
from midmask.tracking import (
    Patience,
    Tracker,
    is_measure,
    measure_of,
    metric_key,
    read_runs,
    redacted,
    resolve_tracking_uri,
    ui_address,
)
from midmask.tracking.journal import left_behind

QUICK = Patience(answer=30, close=20, flush=0.02, retry=0.05, longest_retry=0.2)
NEVER = Patience(answer=30, close=0.1, flush=3600, retry=0.05)
"""Gathers for an hour, so that nothing reaches the store before the process dies."""

TAGS = {"midmask.fingerprint": "f00d", "midmask.step": "pretrain"}

PUBLISHED = ["nDCG@10", "R(rel=2)@100", "RR", "AP@1000", "nDCG(dcg='exp-log2')@10", "RBP(p=0.8,rel=1)@10", "SetP"]


def history(uri: str, run_id: str, key: str) -> list[tuple[int, float]]:
    """(step, value) of every point the store holds, asked from MLflow itself."""
    return sorted((point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, key))


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables and nothing else, made once: making them takes seconds."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path: Path, empty_store: Path) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


# --- names ---------------------------------------------------------------------------------------------------------


def test_keys_of_the_contract() -> None:
    assert metric_key("pydocs", "dev", "nDCG@10") == "pydocs/dev/nDCG_at_10"
    assert metric_key("squad", "test", "R(rel=2)@100") == "squad/test/R_rel.2_at_100"
    assert metric_key("ms_marco.v2-passage", "dev-small", "RBP(p=0.8)") == "ms_marco.v2-passage/dev-small/RBP_p.0.8"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_measures_come_back_as_ir_measures_prints_them(name: str) -> None:
    measure = ir_measures.parse_measure(name)
    back = measure_of(metric_key("pydocs", "dev", str(measure)))[2]
    assert ir_measures.parse_measure(back) == measure


grammar = st.text("nDCGR@()=,._-:'/ at0189é", min_size=1, max_size=12)
names = st.one_of(grammar, st.text(min_size=1, max_size=12), st.sampled_from(PUBLISHED))
triples = st.tuples(names, names, names)


@given(triples)
def test_any_name_comes_back_and_mlflow_takes_its_key(triple: tuple[str, str, str]) -> None:
    key = metric_key(*triple)
    _validate_metric_name(key)
    assert is_measure(key)
    assert measure_of(key) == triple


@given(triples, triples)
def test_no_two_names_collide(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (metric_key(*one) == metric_key(*other)) == (one == other)


def test_credentials_do_not_show() -> None:
    for text in ("postgresql://me:pw@host/db", "see https://user:p%40w@host:5000/x now", "http://TOKEN@host/"):
        shown = redacted(text)
        assert "***@host" in shown and "pw" not in shown and "p%40w" not in shown and "TOKEN" not in shown
    assert redacted("s3://b/k?a=1&X-Amz-Signature=abc&z=2") == "s3://b/k?a=1&X-Amz-Signature=***&z=2"
    assert redacted("mail me@example.org, beir:/x/y") == "mail me@example.org, beir:/x/y"


# --- which store ---------------------------------------------------------------------------------------------------


def test_flag_wins_over_environment_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve_tracking_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert resolve_tracking_uri(None, tmp_path) == "http://127.0.0.1:5000"
    assert resolve_tracking_uri("sqlite:///runs/a.db", tmp_path) == f"sqlite:///{tmp_path}/runs/a.db"
    assert resolve_tracking_uri("sqlite:////abs/a.db", tmp_path) == "sqlite:////abs/a.db"
    assert resolve_tracking_uri("postgresql+psycopg2://u:p@h/d", tmp_path) == "postgresql+psycopg2://u:p@h/d"


@pytest.mark.parametrize(
    "uri", ["file:///x/mlruns", "mlruns", "/x/mlruns", "sqlite://", "sqlite:///:memory:", "ftp://h"]
)
def test_stores_that_keep_nothing_are_refused_with_advice(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sqlite:///mlflow\.db"):
        resolve_tracking_uri(uri, tmp_path)


def test_ui_address_holds_no_credentials() -> None:
    assert ui_address("https://me:pw@host:8000/mlflow/") == "https://host:8000/mlflow"


def test_processes_that_open_a_fresh_file_at_once_all_write(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/fresh.db"
    script = """
import sys
from pathlib import Path
from midmask.tracking import Patience, Tracker
uri, home, number = sys.argv[1:]
with Tracker(uri, Path(home), Patience(flush=0.02)) as tracker, tracker.run(f"run {number}", tags={}, params={}) as run:
    run.log({"loss": float(number)}, 0)
"""
    started = [subprocess.Popen([sys.executable, "-c", script, uri, str(tmp_path), str(n)]) for n in range(3)]
    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert sorted(row.metrics["loss"] for row in read_runs(uri)) == [0.0, 1.0, 2.0]


# --- writing -------------------------------------------------------------------------------------------------------


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
    assert {key: value for key, value in stored.data.metrics.items() if key != "odd"} == {
        f"m{n}": n / 7 for n in range(2500)
    }
    assert stored.data.params["p249"] == "249" and stored.data.params["none"] == "null"
    assert len(stored.data.params["long"]) == 6000 and stored.data.params["long"].endswith("[cut, 9000 characters]")
    assert stored.data.tags["mlflow.parentRunId"] == parent.id
    assert (stored.info.status, stored.data.tags["midmask.status"]) == ("KILLED", "pruned")
    artifacts = tmp_path / "mlartifacts" / run.id / "artifacts"
    assert (artifacts / "runs" / "list.txt").read_text() == "q1 d1"
    assert (artifacts / "notes" / "a.txt").read_text() == "see postgresql://***@h/d"
    assert b":pw@" not in (tmp_path / "mlflow.db").read_bytes()


def test_four_threads_lose_nothing(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        runs = [tracker.run(f"trial {n}", tags={}, params={}) for n in range(4)]

        def work(n: int) -> None:
            for step in range(100):
                runs[n].log({"own": step + n}, step)
                runs[0].log({f"shared{n}": step}, step)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for n in range(4):
        assert history(uri, runs[n].id, "own") == [(step, step + n) for step in range(100)]
        assert history(uri, runs[0].id, f"shared{n}") == [(step, step) for step in range(100)]


def test_a_worker_that_tells_steps_again_is_heard_once(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker, tracker.run("x", tags={}, params={}) as run:
        for step in [0, 1, 2, 3, 2, 3, 4]:
            run.log({"loss": float(step)}, step)
            run.log({f"only{step}": 1.0}, 0)
    assert history(uri, run.id, "loss") == [(step, step) for step in range(5)]


def test_what_the_store_refuses_is_put_aside_and_the_rest_goes_on(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        gone, run = (tracker.run(name, tags={}, params={}) for name in ("gone", "stays"))
        MlflowClient(uri).delete_run(gone.id)
        (tmp_path / "mlartifacts").write_text("a file where a folder should be")
        gone.log({"loss": 1.0}, 0)
        run.log_text("nowhere to go", "a.txt")
        run.log({"loss": 2.0}, 0)
    assert history(uri, run.id, "loss") == [(0, 2.0)]
    kept = [
        json.loads(line) for path in (tmp_path / "mlflow-pending").iterdir() for line in path.read_text().splitlines()
    ]
    assert sorted(kind for kind, _ in kept) == ["metrics", "text"]
    assert "refuses" in caplog.text


# --- finding, resuming, caching ------------------------------------------------------------------------------------


def test_a_failed_run_is_resumed_and_a_finished_one_is_linked(uri: str, tmp_path: Path) -> None:
    with Tracker(uri, tmp_path, QUICK) as tracker:
        with pytest.raises(ZeroDivisionError), tracker.run("a", tags=TAGS, params={"seed": 1, "workers": 2}) as first:
            for step in range(4):
                first.log({"loss": step / 3}, step)
            raise ZeroDivisionError
        assert tracker.find("f00d", step="pretrain").unfinished == (first.id,)
    with Tracker(uri, tmp_path, QUICK) as tracker:
        with tracker.run("a", tags=TAGS, params={"seed": 1, "workers": 8, "new": 0}) as again:
            assert (again.id, again.resumed) == (first.id, True)
            assert not tracker.run("b", tags=TAGS, params={}).resumed, "a run that is being written is not resumed"
            for step in range(2, 6):
                again.log({"loss": 100.0 + step}, step)
        found = tracker.find("f00d", step="pretrain")
        assert found.finished == first.id
        link = tracker.link_cached(first.id, "a", tags=TAGS)
        assert tracker.find("f00d", step="pretrain").finished == first.id
        assert tracker.find("f00d", step="evaluate") == tracker.find("beef", step="pretrain")
    assert history(uri, first.id, "loss") == [(0, 0), (1, 1 / 3), (2, 2 / 3), (3, 1), (4, 104.0), (5, 105.0)]
    stored = MlflowClient(uri).get_run(first.id)
    assert (stored.info.status, stored.data.tags["midmask.status"]) == ("FINISHED", "finished")
    assert stored.data.params == {"seed": "1", "workers": "2", "new": "0"}
    assert json.loads(stored.data.tags["midmask.changed_on_resume"]) == {"workers": "8"}
    cached = MlflowClient(uri).get_run(link).data.tags
    assert (cached["midmask.status"], cached["midmask.cached_run"]) == ("cached", first.id)


def test_killed_before_anything_was_sent_and_resumed(uri: str, tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from midmask.tracking import Patience, Tracker
tracker = Tracker(sys.argv[1], Path(sys.argv[2]), Patience(flush=3600))
run = tracker.run("a", tags={"midmask.fingerprint": "f00d", "midmask.step": "pretrain"}, params={"seed": 1})
print(run.id, flush=True)
for step in range(50):
    run.log({"loss": step / 3}, step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script, uri, str(tmp_path)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL
    run_id = killed.stdout.strip()
    assert history(uri, run_id, "loss") == [], "nothing may have been sent, or this test shows nothing"
    (torn,) = (path for _, path in left_behind(tmp_path, uri))
    torn.write_bytes(torn.read_bytes() + b'["metrics", [["loss", 0.')
    with (
        Tracker(uri, tmp_path, QUICK) as tracker,
        tracker.run("a", tags=TAGS, params={"seed": 1}) as run,
    ):
        assert (run.id, run.resumed) == (run_id, True)
        for step in range(40, 60):
            run.log({"loss": step / 3}, step)
    assert history(uri, run_id, "loss") == [(step, step / 3) for step in range(60)]
    assert left_behind(tmp_path, uri) == []


def test_values_sent_twice_land_once(uri: str, tmp_path: Path) -> None:
    """A request may have arrived though its answer did not, so a journal may hold what the store has already."""
    with Tracker(uri, tmp_path, NEVER) as tracker:
        run = tracker.run("a", tags=TAGS, params={"seed": 1})
        run.log({"loss": 0.1, "odd": float("nan")}, 0)
        ((_, path),) = left_behind(tmp_path, uri)
        copy = path.read_bytes()
    for _ in range(2):
        path.write_bytes(copy)
        Tracker(uri, tmp_path, QUICK).close()
    assert history(uri, run.id, "loss") == [(0, 0.1)]
    assert len(history(uri, run.id, "odd")) == 1


# --- a server that goes away ---------------------------------------------------------------------------------------


class Server:
    """A real `mlflow server` on a port of its own, ended by its process group."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        store = f"sqlite:///{self.folder}/server.db"
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
        command += [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--artifacts-destination",
            str(self.folder / "art"),
        ]
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        env.pop("MLFLOW_TRACKING_URI", None)
        with open(self.folder / "server.log", "ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=env, cwd=self.folder, start_new_session=True
            )

    def wait(self) -> None:
        end = time.monotonic() + 90
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError((self.folder / "server.log").read_text()[-2000:])

    def stop(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


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
    with Tracker(server.uri, tmp_path, QUICK) as tracker:
        run = tracker.run("a", tags=TAGS, params={"seed": 1})
        for step in range(90):
            if step == 30:
                server.stop()
            if step == 60:
                server.start()
            run.log({"loss": step / 3, "odd": float("inf") if step % 2 else float("nan")}, step)
        (tmp_path / "a.txt").write_text("kept")
        run.log_file(tmp_path / "a.txt", "files")
        child = tracker.run("b", tags={}, params={}, parent=run.id)  # waits until the server is back
        child.finish()
        run.finish()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 2, (
        warnings
    )  # one of the sender; one of the call that could not go on without an answer
    assert any("mlflow-pending" in text for text in warnings)
    assert history(server.uri, run.id, "loss") == [(step, step / 3) for step in range(90)]
    assert len(history(server.uri, run.id, "odd")) == 90
    assert list((tmp_path / "art").rglob("a.txt"))
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
    assert left_behind(tmp_path, server.uri) == []


# --- reading -------------------------------------------------------------------------------------------------------


def test_reading_pages_through_all_runs_and_creates_nothing(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_runs(f"sqlite:///{tmp_path}/none.db") == [] and not (tmp_path / "none.db").exists()
    assert read_runs(uri) == []
    monkeypatch.setattr("midmask.tracking.reading.PAGE", 3)
    with Tracker(uri, tmp_path, QUICK) as tracker:
        written = {tracker.run(f"r{n}", tags={}, params={}).id for n in range(8)}
    assert {row.run_id for row in read_runs(uri)} == written
    assert all(row.status == "running" and row.ended is None for row in read_runs(uri))


def test_neither_torch_nor_ray_is_imported() -> None:
    check = "import sys, midmask.tracking, midmask.leaderboard; print(sorted({'torch', 'ray'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout == "[]\n"
