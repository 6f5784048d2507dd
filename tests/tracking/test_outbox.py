"""The journal of a run's values: owned by one process, whole after a kill, taken over after it; full or refusing disks.

Disks that are full or may not be written, and servers that refuse access, are told in one line each, at once.
"""

import contextlib
import fcntl
import itertools
import json
import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from midmask.errors import UserError
from midmask.tracking import Patience, Tracker, read_runs
from midmask.tracking.outbox import Journal, JournalEntry, find_left_behind, journal_path
from tests.support.disks import mounted
from tests.support.tracking.stores import QUICK, TAGS, history
from tests.support.waiting import wait_until

URI = "sqlite:////data/mlflow.db"
POINTS = JournalEntry("metrics", [["loss", 0.5, 1700000000000, 3], ["näh", float("inf"), 1, 0]])
TAGS_ENTRY = JournalEntry("tags", {"midmask.step": "a\nb"})


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return claimed(tmp_path / "home" / "mlflow-pending" / "run.jsonl")


def claimed(path: Path) -> Journal:
    found = Journal.claim(path)
    assert found is not None
    return found


def test_what_was_appended_comes_back_in_order_and_clearing_empties_it(journal: Journal) -> None:
    assert list(journal.entries()) == []
    for entry in (POINTS, TAGS_ENTRY, POINTS):
        journal.append(entry)
    assert list(journal.entries()) == [POINTS, TAGS_ENTRY, POINTS]
    journal.clear()
    assert list(journal.entries()) == [] and journal.path.read_bytes() == b""
    journal.append(TAGS_ENTRY)
    assert list(journal.entries()) == [TAGS_ENTRY]
    assert journal.path.read_bytes() == json.dumps(TAGS_ENTRY).encode() + b"\n", "no empty line stands before it"
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600, "only its user may read it"


def test_a_journal_has_one_owner_until_it_is_closed(journal: Journal) -> None:
    journal.append(TAGS_ENTRY)
    before = len(os.listdir("/proc/self/fd"))
    assert Journal.claim(journal.path) is None and Journal.claim(journal.path) is None
    assert len(os.listdir("/proc/self/fd")) == before, "a claim in vain leaves no file open"
    journal.close(remove=False)
    again = claimed(journal.path)
    assert list(again.entries()) == [TAGS_ENTRY]
    again.append(POINTS)
    assert again.path.read_bytes().count(b"\n") == 2, "a whole last line gets no empty one behind it"
    again.close(remove=True)
    assert not journal.path.exists()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def end_of(child: Callable[[], None]) -> int:
    """Runs a function in a process of its own, forked from this one; its exit code."""
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return int(process.exitcode or 0)


@pytest.mark.parametrize("files", [(0,), (0, 1), (1, 0)])
def test_a_file_that_its_owner_removed_meanwhile_is_not_claimed(files: tuple[int, ...], tmp_path: Path) -> None:
    """The new owner opened the old file before it went: its lock would be on a file that nobody finds. Another process
    may have made a new file of that name since.

    Args:
        files: those that bear the name, one after the other, by the order of their inodes.
    """
    path, made = tmp_path / "run.jsonl", [tmp_path / "a", tmp_path / "b"]
    for file in made:
        file.touch()
    made.sort(key=lambda file: file.stat().st_ino)

    def claim_while_it_goes() -> None:
        flock, gone, (first, *later) = fcntl.flock, list[Path](), [made[at] for at in files]
        first.rename(path)

        def remove_first(descriptor: int, how: int) -> None:
            if not gone:
                path.unlink()
                gone.append(path)
                for file in later:
                    file.rename(path)
            flock(descriptor, how)

        fcntl.flock = remove_first
        before = len(os.listdir("/proc/self/fd"))
        mine = claimed(path)
        assert gone
        mine.append(TAGS_ENTRY)
        assert json.loads(path.read_text()) == list(TAGS_ENTRY)
        assert len(os.listdir("/proc/self/fd")) == before + 1, "the descriptor of the removed file is closed"

    assert end_of(claim_while_it_goes) == 0


def test_a_killed_owner_loses_its_lock_and_half_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.jsonl"

    def write_and_die() -> None:
        claimed(path).append(JournalEntry("tags", {"a": "b"}))
        with path.open("a") as stream:
            stream.write('["metrics", [["lo')
        os.kill(os.getpid(), signal.SIGKILL)

    assert end_of(write_and_die) == -signal.SIGKILL
    again = claimed(path)
    again.append(TAGS_ENTRY)
    with caplog.at_level(logging.WARNING):
        assert list(again.entries()) == [JournalEntry("tags", {"a": "b"}), TAGS_ENTRY]
    assert caplog.text.count("a half-written line is left out") == 1
    assert path.read_text().splitlines()[-1] == json.dumps(TAGS_ENTRY)


def test_what_the_store_refuses_is_kept_beside_the_journal(journal: Journal) -> None:
    path = journal.refuse([POINTS])
    assert path == journal.path.with_suffix(".refused") and journal.refuse([TAGS_ENTRY, TAGS_ENTRY]) == path
    assert [JournalEntry(*json.loads(line)) for line in path.read_text().splitlines()] == [
        POINTS,
        TAGS_ENTRY,
        TAGS_ENTRY,
    ]
    assert list(journal.entries()) == []


def test_journals_of_a_store_are_found_by_run_whatever_its_password(tmp_path: Path) -> None:
    secret = "postgresql://me:secret@host/db"
    for uri, run in ((secret, "b2"), (secret, "a1"), (URI, "c3")):
        claimed(journal_path(tmp_path, uri, run)).refuse([TAGS_ENTRY])
    found = find_left_behind(tmp_path, secret)
    assert [run for run, _ in found] == ["a1", "b2"]
    assert [path for _, path in found] == [journal_path(tmp_path, secret, run) for run in ("a1", "b2")]
    assert find_left_behind(tmp_path, "postgresql://me:other@host/db") == found
    assert [run for run, _ in find_left_behind(tmp_path, URI)] == ["c3"]
    assert find_left_behind(tmp_path / "none", URI) == []
    assert not any("secret" in path.name for path in (tmp_path / "mlflow-pending").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB and 64 files."""
    with mounted(tmp_path / "disk", "size=64k,nr_inodes=64") as folder:
        yield folder


def fill(folder: Path) -> None:
    """Leaves room for no byte and no further file."""
    with open(folder / "ballast", "wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(1024))
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (folder / f"ballast-{number}").touch()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_full_disk_under_the_journal_costs_one_warning_and_no_value(
    uri: str, tmp_path: Path, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Tracker(uri, small_disk, QUICK) as tracker, tracker.run("a", tags=TAGS, params={"seed": 1}) as run:
        for step in range(40):
            if step == 20:
                fill(small_disk)
            run.log({f"loss{n}": step / 3 for n in range(50)}, step)
        nested = tracker.run("b", tags={}, params={}, parent=run.id)
        nested.log({"loss": 1.0}, 0)
        nested.finish()
    assert history(uri, run.id, "loss49") == [(step, step / 3) for step in range(40)]
    assert history(uri, nested.id, "loss") == [(0, 1.0)]
    assert {row.status for row in read_runs(uri)} == {"finished"}
    told = [text for text in warnings(caplog) if "No space left on device" in text]
    assert 1 <= len(told) <= 2 and all("the run goes on" in text for text in told), "one for each run at most"


def test_a_home_that_may_not_be_written_is_one_line_at_once(
    uri: str, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(UserError, match=r"cannot be written .*MIDMASK_HOME") as told:
        Tracker(f"sqlite:///{small_disk}/mlflow.db", small_disk, Patience())
    assert "\n" not in str(told.value)
    with Tracker(uri, small_disk, Patience()) as tracker:
        with pytest.raises(UserError, match="mlflow-pending cannot be written"):
            tracker.run("a", tags={}, params={})
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
        (401, b'{"detail": "go away"}'),
    ],
    ids=["a proxy", "mlflow", "another server"],
)
def test_a_refused_token_is_one_line_at_once(
    status: int, body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After one request, and two more for the status where MLflow's client has lost it."""
    with refusing(status, body) as (host, requests):
        with pytest.raises(UserError, match=r"refuses access: .*MLFLOW_TRACKING_TOKEN") as told:
            Tracker(f"http://me:pass-word-1@{host}", tmp_path, Patience())
    assert len(requests) <= 3 and warnings(caplog) == []
    assert "\n" not in str(told.value) and "pass-word-1" not in str(told.value)


def test_a_tracker_that_is_refused_later_leaves_no_thread(tmp_path: Path) -> None:
    with refusing(403, b"go away", lets_experiments=True) as (host, _):
        before = set(threading.enumerate())
        with pytest.raises(UserError, match="refuses access"):
            Tracker(f"http://{host}", tmp_path, Patience())
        wait_until(lambda: not set(threading.enumerate()) - before)


RUBBISH = [b"", b"null", b"[]", b"5", b"<html>no</html>", b"\xff\xfe", b'{"runs": 5}', b"[" * 100_000]


@pytest.mark.parametrize("body", RUBBISH, ids=range(len(RUBBISH)))
def test_a_server_that_answers_with_something_else_ends_nothing_in_a_traceback(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    soon = Patience(answer=0.05, close=0.05, flush=0.01, retry=0.01, longest_retry=0.02)
    with refusing(200, body, lets_experiments=True) as (host, _):
        with contextlib.suppress(UserError):
            read_runs(f"http://{host}")
        with contextlib.suppress(UserError), Tracker(f"http://{host}", tmp_path, soon) as tracker:
            with tracker.run("a", tags=TAGS, params={"seed": 1}) as run:
                run.log({"loss": 1.0}, 0)
