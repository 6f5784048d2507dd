"""Artifacts: complete or absent, by path or URI, also when the maker dies in between."""

import os
import signal
import subprocess
import sys
import time

import pytest

from midmask.artifact import RECORD, Place, load, produce
from midmask.errors import UserError


@pytest.fixture(params=["path", "uri"])
def root(request, tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    return Place(str(tmp_path / "store") if request.param == "path" else (tmp_path / "store").as_uri())


def test_an_artifact_is_made_once_and_then_loaded(root):
    calls = []

    def make(out):
        calls.append(out)
        (out / "data" / "a.txt").write(b"hello")
        return {"n": 1}

    first = produce(root / "step" / "abc", {"fingerprint": "abc"}, make)
    second = produce(root / "step" / "abc", {"fingerprint": "abc"}, make)
    assert len(calls) == 1
    assert first == second
    assert second.result == {"n": 1}
    assert (second.place.local() / "data" / "a.txt").read_text() == "hello"


def test_a_failed_maker_leaves_no_record_but_its_files(root):
    def fail(out):
        (out / "part").write(b"1")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        produce(root / "s", {"fingerprint": "f"}, fail)
    with pytest.raises(UserError, match=r"record\.json is missing"):
        load(root / "s")

    again = produce(root / "s", {"fingerprint": "f"}, lambda out: {"found": (out / "part").read().decode()})
    assert again.result == {"found": "1"}


def test_a_write_that_breaks_off_leaves_no_file(root):
    def write_and_die():
        with (root / "file").writing() as stream:
            stream.write(b"half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        write_and_die()
    assert root.names() == []


def test_upload_keeps_the_tree(root, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "x").write_bytes(b"x" * 3_000_000)
    (root / "copy").upload(source)
    assert (root / "copy" / "deep" / "x").read() == b"x" * 3_000_000


def test_the_local_copy_of_a_uri_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    place = Place((tmp_path / "store").as_uri())
    (place / "a").write(b"1")
    copy = place.local()
    assert copy != tmp_path / "store"
    assert copy == place.local()
    assert (copy / "a").read_bytes() == b"1"


def test_an_unknown_scheme_is_one_line():
    with pytest.raises(UserError, match="storage 'nope://x' cannot be opened"):
        Place("nope://x").exists()


MAKER = """
import sys, time
from midmask.artifact import Place, produce
def make(out):
    print("making", flush=True)
    time.sleep(float(sys.argv[2]))
    return {"by": sys.argv[3]}
print(produce(Place(sys.argv[1]), {"fingerprint": "f"}, make).result["by"], flush=True)
"""


def start(place, seconds, name):
    command = [sys.executable, "-c", MAKER, str(place), str(seconds), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_make_it_once_and_a_killed_one_leaves_no_lock(tmp_path):
    place = tmp_path / "s"
    doomed = start(place, 600, "doomed")
    assert doomed.stdout.readline() == "making\n"
    waiting = start(place, 0, "second")
    os.kill(doomed.pid, signal.SIGKILL)
    out, _ = waiting.communicate(timeout=60)
    assert out.split() == ["making", "second"]
    doomed.communicate()
    deadline = time.monotonic() + 60
    third, _ = start(place, 0, "third").communicate(timeout=deadline - time.monotonic())
    assert third.split() == ["second"]
    assert (place / RECORD).exists()
