"""Names of measures and stores; disks that may not be written, servers that refuse or answer rubbish: one line each."""

import contextlib
import logging
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_tag_name

from midmask.errors import UserError
from midmask.tracking.names import artifact_key, is_measure, measure_of, metric_key, resolve_tracking_uri, ui_address
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
from tests.support.disks import mounted
from tests.support.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB and 64 files."""
    with mounted(tmp_path / "disk", "size=64k,nr_inodes=64") as folder:
        yield folder


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_home_that_may_not_be_written_is_one_line_at_once(uri, small_disk, caplog) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for store in (f"sqlite:///{small_disk}/mlflow.db", uri):
        with pytest.raises(UserError, match=r"(readonly|Read-only) .*MIDMASK_HOME") as told:
            Tracker(store, small_disk, Patience())
        assert "\n" not in str(told.value)
    assert warnings(caplog) == [], "it waits for nothing"


EXPERIMENT = b"""{"experiment_id": "1", "experiment": {
    "experiment_id": "1", "name": "midmask", "artifact_location": "x", "lifecycle_stage": "active"}}"""


@contextlib.contextmanager
def refusing(status: int, body: bytes, *, lets_experiments: bool = False) -> Iterator[tuple[str, list[str]]]:
    """The host and port of a server that answers every request with this, and the requests it got.

    Args:
        lets_experiments: requests for an experiment are answered as they should be.
    """
    seen: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            lets = lets_experiments and "/experiments/" in self.path
            self.send_response(200 if lets else status)
            self.end_headers()
            self.wfile.write(EXPERIMENT if lets else body)

        do_POST = do_GET

        def log_message(self, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"go away"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "go away"}'),
    ],
    ids=["a proxy", "mlflow"],
)
def test_a_refused_token_is_one_line_at_once(status, body, tmp_path, caplog) -> None:
    with refusing(status, body) as (host, requests):
        with pytest.raises(UserError, match=r"does not answer .*MLFLOW_TRACKING_TOKEN") as told:
            Tracker(f"http://me:pass-word-1@{host}", tmp_path, Patience())
    assert len(requests) <= 3 and warnings(caplog) == []
    assert "\n" not in str(told.value) and "pass-word-1" not in str(told.value)


def test_a_tracker_that_is_refused_later_leaves_no_thread(tmp_path: Path) -> None:
    with refusing(403, b"go away", lets_experiments=True) as (host, _):
        before = set(threading.enumerate())
        with pytest.raises(UserError, match="MLFLOW_TRACKING_TOKEN"):
            Tracker(f"http://{host}", tmp_path, Patience())
        wait_until(lambda: not set(threading.enumerate()) - before)


RUBBISH = [b"", b"null", b"[]", b"5", b"<html>no</html>", b"\xff\xfe", b'{"runs": 5}', b"[" * 100_000]


@pytest.mark.parametrize("body", RUBBISH, ids=range(len(RUBBISH)))
def test_a_server_that_answers_with_something_else_ends_nothing_in_a_traceback(body: bytes, tmp_path: Path) -> None:
    soon = Patience(answer=0.05, close=0.05, flush=0.01, retry=0.01, longest_retry=0.02)
    with refusing(200, body, lets_experiments=True) as (host, _):
        with contextlib.suppress(UserError):
            read_runs(f"http://{host}")
        with contextlib.suppress(UserError), Tracker(f"http://{host}", tmp_path, soon) as tracker:
            with tracker.run("a", tags={}, params={"seed": 1}) as run:
                run.log({"loss": 1.0}, 0)


PUBLISHED = ["nDCG@10", "R(rel=2)@100", "RR", "AP@1000", "nDCG(dcg='exp-log2')@10", "RBP(p=0.8,rel=1)@10", "SetP"]


def test_keys_of_the_contract() -> None:
    assert metric_key("pydocs", "dev", "nDCG@10") == "pydocs/dev/nDCG_at_10"
    assert metric_key("squad", "test", "R(rel=2)@100") == "squad/test/R_rel.2_at_100"
    for measure in map(ir_measures.parse_measure, PUBLISHED):
        assert ir_measures.parse_measure(measure_of(metric_key("pydocs", "dev", str(measure)))[2]) == measure
    assert metric_key("ms_marco.v2-passage", "dev-small", "RBP(p=0.8)") == "ms_marco.v2-passage/dev-small/RBP_p.0.8"


grammar = st.text("nDCGR@()=,._-:'/ at0189é", min_size=1, max_size=12)
names = st.one_of(grammar, st.text(min_size=1, max_size=6))
params = st.sampled_from(["", "(rel=2)", "(p=0.8,rel=1)", "(dcg='exp-log2')"])
cutoffs = st.sampled_from(["", "@10", "@1000"])
measures = st.builds("{}{}{}".format, st.text("nDCGR-_.'é/ ", min_size=1, max_size=6), params, cutoffs)
triples = st.tuples(names, names, measures)


@given(triples, triples)
def test_any_name_comes_back_as_no_other_does_and_mlflow_takes_its_key(triple, other) -> None:
    key = metric_key(*triple)
    _validate_metric_name(key)
    _validate_tag_name(artifact_key(*triple[:2]))
    assert is_measure(key)
    assert measure_of(key) == triple and (key == metric_key(*other)) == (triple == other)


def test_flag_wins_over_environment_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve_tracking_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert resolve_tracking_uri(None, tmp_path) == "http://127.0.0.1:5000"
    assert resolve_tracking_uri("sqlite:///runs/a.db", tmp_path) == f"sqlite:///{tmp_path}/runs/a.db"
    assert resolve_tracking_uri("sqlite:////abs/a.db", tmp_path) == "sqlite:////abs/a.db"
    assert resolve_tracking_uri("postgresql+psycopg2://u:p@h/d", tmp_path) == "postgresql+psycopg2://u:p@h/d"


@pytest.mark.parametrize("uri", "file:///x/mlruns mlruns /x/mlruns sqlite:// sqlite:///:memory: ftp://h".split())
def test_stores_that_keep_nothing_are_refused_with_advice(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sqlite:///mlflow\.db"):
        resolve_tracking_uri(uri, tmp_path)
    assert ui_address("https://me:pw@host:8000/mlflow/") == "https://host:8000/mlflow"
