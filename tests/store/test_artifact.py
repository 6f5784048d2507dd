"""Artifacts: complete or absent, by path or URI, also when the maker dies in between or two make the same one; damaged
ones, and stores that are full, read-only or not there.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from midmask.errors import UserError
from midmask.store.artifact import RECORD, Attempt, attempt, folder_of_attempts, load, produce, start_afresh
from midmask.store.leases import LeaseWatch, Timing, lease
from midmask.store.place import Place
from tests.support.disks import mounted
from tests.support.object_store import Requests, object_store

QUICK = Timing(renew_s=0.05, dead_s=0.4, look_s=0.02)


@pytest.fixture(scope="module")
def s3():
    with object_store() as options:
        yield options


PROCESSES = pytest.mark.parametrize(
    "root", ["path", *(pytest.param(one, marks=pytest.mark.system) for one in ("file", "s3"))], indirect=True
)


@pytest.fixture(params=["path", "file", "s3"])
def root(request, tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    if request.param == "s3":
        return Place(f"s3://bucket/{tmp_path.name}?{request.getfixturevalue('s3')}")
    return Place(str(tmp_path / "store") if request.param == "path" else (tmp_path / "store").as_uri())


def test_an_artifact_is_made_once_and_then_loaded(root):
    calls = []

    def make(out):
        calls.append(out)
        (out / "data" / "a.txt").write(b"hello")
        return {"n": 1}

    first, second = (produce(root / "step" / "abc", {"fingerprint": "abc"}, make) for _ in range(2))
    assert len(calls) == 1 and first == second == load(root / "step" / "abc")
    assert second.result == {"n": 1} and (second.place.local() / "data" / "a.txt").read_text() == "hello"


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
    assert sum(name.endswith("part") for name in root.sizes()) == 1, "what was taken over is deleted"


def test_a_step_that_starts_afresh_and_a_write_that_breaks_off_leave_no_files(root):
    for name in ("part", "deep/er/part"):
        (root / "s" / name).write(b"1")
    (root / "t").write(b"of another step")
    start_afresh(root / "s")
    assert (root / "s").names() == [] and root.sizes() == {"t": 15}
    with pytest.raises(RuntimeError), (root / "file").writing() as stream:
        stream.write(b"half")
        raise RuntimeError("disk full")
    assert root.sizes() == {"t": 15}


def test_places_are_folders_or_files_that_are_copied_and_uploaded_whole(root, tmp_path):
    (root / "a").write(b"123")
    (root / "b" / "c").write(b"4567")
    places = (root, root / "a", root / "b", root / "none")
    assert [place.is_folder() for place in places] == [True, False, True, False]
    assert [place.size() for place in places] == [7, 3, 4, 0]
    for name in ("folder/absent", "b/c"):
        (root / name).copy_from(root / "a")
        assert (root / name).read() == b"123", "what is there is replaced"
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "deep" / "x").write_bytes(b"x" * 3_000_000)
    (root / "copy").upload(tmp_path / "source")
    assert (root / "copy" / "deep" / "x").read() == b"x" * 3_000_000


def test_the_local_copy_of_a_uri_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    place = Place((tmp_path / "store").as_uri())
    (place / "a").write(b"1")
    copy = place.local()
    shutil.rmtree(tmp_path / "store")
    assert place.local() == copy != tmp_path / "store", "it is not copied again"
    assert (copy / "a").read_bytes() == b"1"


def test_names_are_put_before_the_options_of_a_uri_and_an_unknown_scheme_is_refused():
    place = Place("s3://bucket/store?region=x&scheme=http")
    assert str(place / "step" / "a b") == "s3://bucket/store/step/a b?region=x&scheme=http"
    with pytest.raises(UserError, match="storage 'nope://x' cannot be opened"):
        Place("nope://x").exists()


def test_of_two_attempts_the_first_record_wins_and_the_other_is_deleted(root):
    place = root / "step" / "f"
    with attempt(place, QUICK) as slow:
        fast = Attempt(place, "0002-other", LeaseWatch(QUICK))
        (fast.out / "data").write(b"fast")
        (slow.out / "data").write(b"slow")
        fast.publish({"fingerprint": "f", "result": {"by": "fast"}})
        assert (slow.out / "data").read() == b"slow", "nobody touches the files of a living attempt"
        slow.publish({"fingerprint": "f", "result": {"by": "slow"}})
    artifact = load(place)
    assert artifact.result == {"by": "fast"} and (artifact.place / "data").read() == b"fast"
    left = [name.rpartition("/")[2] for name in root.sizes()]
    assert left.count("data") == 1 and set(left) == {"data", RECORD}


def test_a_silent_process_of_another_machine_is_replaced_and_may_still_not_harm(root):
    """Its lease does not change any more; it wakes up when another attempt has gone on from its files."""
    place = root / "step" / "f"
    folder = folder_of_attempts(place)
    silent = Attempt(place, "0001-silent", LeaseWatch(QUICK))
    (silent.out / "part").write(b"kept")
    (folder / "0001-silent.lease").write_json({"machine": "elsewhere", "process": 1, "began": "1", "beat": 3})

    def make(out):
        found = (out / "part").read().decode()
        (silent.out / "part").write(b"written late")
        (silent.out / "part").delete()
        return {"found": found}

    artifact = produce(place, {"fingerprint": "f"}, make, QUICK)
    assert artifact.result == {"found": "kept"} and (artifact.place / "part").read() == b"kept"
    assert not [name for name in root.sizes() if "silent" in name]


def test_a_silent_process_whose_files_are_gone_when_it_wakes_takes_what_another_has_finished(root):
    asleep = Timing(renew_s=600, dead_s=0, by_process=False)  # to any other process it is dead at once

    def make(out):
        (out / "a").write(b"half")
        produce(root, {"fingerprint": "f"}, lambda other: {"by": "another"}, asleep)
        return {"read": (out / "a").read()}

    assert produce(root, {"fingerprint": "f"}, make, asleep).result == {"by": "another"}


def test_a_silent_process_that_finishes_while_its_files_are_taken_over_wins(tmp_path, monkeypatch):
    """It wakes up after the first of its two files was linked; the other attempt then starts with none."""
    place = Place(str(tmp_path / "step" / "f"))
    silent = Attempt(place, "0001-silent", LeaseWatch(QUICK))
    for name in ("a", "b"):
        (silent.out / name).write(name.encode())
    link, linked, found = os.link, [], []

    def wake_up_after_the_first(source, target):
        link(source, target)
        if not linked:
            linked.append(target)
            silent.publish({"fingerprint": "f", "result": {"by": "silent"}})

    def make(out):
        found.extend(out.names())
        return {"by": "other"}

    monkeypatch.setattr(os, "link", wake_up_after_the_first)
    artifact = produce(place, {"fingerprint": "f"}, make, QUICK)
    assert linked and found == [] and artifact.result == {"by": "silent"}
    assert set(Place(str(tmp_path)).sizes()) == {"step/f/a", "step/f/b", f"step/f/{RECORD}"}


def test_an_attempt_that_died_while_it_was_filled_is_passed_over(tmp_path, monkeypatch):
    """Killed after the first of two copies, it holds "a", which in the step's order is written after "b"."""
    place, found = Place(str(tmp_path / "step" / "f")), []
    dead = Attempt(place, "0001-dead", LeaseWatch(QUICK))
    for name in ("b", "a"):
        (dead.out / name).write(name.encode())

    def killed_after_the_first(source, target, link=os.link):
        link(source, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "link", killed_after_the_first)
        produce(place, {"fingerprint": "f"}, lambda out: {}, QUICK)

    def make(out):
        found.extend(out.names())
        return {}

    produce(place, {"fingerprint": "f"}, make, QUICK)
    assert found == ["a", "b"]
    assert set(Place(str(tmp_path)).sizes()) == {"step/f/a", "step/f/b", f"step/f/{RECORD}"}


def test_a_lease_that_changes_lives_wherever_its_process_is(tmp_path):
    place = Place((tmp_path / "one.lease").as_uri())
    watch = LeaseWatch(QUICK)
    state = {"machine": "elsewhere", "process": 1, "began": "1"}
    for beat in range(8):
        place.write_json({**state, "beat": beat})
        assert watch.lives(place)
    with lease(tmp := Place(str(tmp_path / "two.lease")), QUICK):
        assert LeaseWatch(QUICK).lives(tmp)
    assert not LeaseWatch(QUICK).lives(tmp)


def test_a_lease_that_cannot_be_read_just_now_lives(tmp_path):
    """On an object store, a lease that is written again while it is read gives an error, or half of it."""
    (tmp_path / "folder.lease").mkdir()
    (tmp_path / "half.lease").write_text('{"machine": "x", "pro')
    assert all(LeaseWatch(QUICK).lives(Place(str(tmp_path / f"{name}.lease"))) for name in ("folder", "half"))
    assert not LeaseWatch(QUICK).lives(Place(str(tmp_path / "none.lease")))


MAKER = """
import sys
from midmask.store.artifact import produce
from midmask.store.leases import Timing
from midmask.store.place import Place
def make(out):
    (out / "part").exists() or (out / "part").write(sys.argv[2].encode())
    print("making", flush=True)
    sys.stdin.readline()
    return {"by": sys.argv[2], "part": (out / "part").read().decode()}
result = produce(Place(sys.argv[1]), {"fingerprint": "f"}, make, Timing(0.1, 600, 0.05)).result
print(result["by"], result["part"], flush=True)
"""


def start(place, name):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", MAKER, str(place), name], **pipes, text=True)


@PROCESSES
def test_two_processes_make_it_once(root):
    first = start(root / "s", "first")
    assert first.stdout.readline() == "making\n"
    second = start(root / "s", "second")
    assert "is making" in second.stderr.readline()
    assert first.communicate("go\n")[0] == "first first\n"
    assert second.communicate()[0] == "first first\n"


@PROCESSES
def test_the_attempt_of_a_killed_process_is_taken_over_at_once(root):
    """At once, since its process is seen to be gone: the lease would live for ten minutes."""
    doomed = start(root / "s", "doomed")
    assert doomed.stdout.readline() == "making\n"
    waiting = start(root / "s", "second")
    assert "is making" in waiting.stderr.readline()
    os.kill(doomed.pid, signal.SIGKILL)
    out, _ = waiting.communicate("go\n")
    assert out.splitlines() == ["making", "second doomed"]
    doomed.communicate()
    assert start(root / "s", "third").communicate("")[0] == "second doomed\n"
    assert load(root / "s").result["by"] == "second"


def write_part(out):
    (out / "data" / "part.bin").write(b"0123456789" * 100)
    return {"n": 1}


def flip(path):
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(bytes(data))


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [("data/part.bin", flip, r"part\.bin is damaged: .* changed.*Delete .*/s"),
     ("data/part.bin", cut, r"part\.bin is damaged: .*997 bytes of 1,000.*Delete .*/s"),
     ("data/part.bin", os.unlink, r"part\.bin is damaged: .* missing.*Delete .*/s"),
     (RECORD, cut, r"record\.json is damaged: .*Delete .*/s")],
)  # fmt: skip
def test_damage_is_one_line_that_names_the_file_and_what_to_type(name, harm, message, tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    root = Place((tmp_path / "store").as_uri())
    produce(root / "s", {"fingerprint": "f"}, write_part)
    harm(next(iter(sorted((tmp_path / "store").rglob(name), key=lambda path: len(path.parts)))))
    for use in (lambda place: (place / "data" / "part.bin").read(), lambda place: (place / "data").local()):
        with pytest.raises(UserError, match=message) as caught:
            use(load(root / "s").place)
        assert "\n" not in str(caught.value)


def test_the_contents_of_a_local_file_are_read_as_they_are(tmp_path):
    place = Place(str(tmp_path / "s"))
    artifact = produce(place, {"fingerprint": "f"}, write_part)
    flip(tmp_path / "s" / "data" / "part.bin")
    assert len((artifact.place / "data" / "part.bin").read()) == 1000
    assert (artifact.place / "data").local()


def test_a_remote_file_is_fetched_once_to_be_checked_and_read():
    seen = Requests()
    with object_store(requests=seen) as options:
        artifact = produce(Place(f"s3://bucket/once?{options}"), {"fingerprint": "f"}, write_part)
        before = (seen.reading, seen.down)
        assert len((artifact.place / "data" / "part.bin").read()) == 1000
    assert (seen.reading - before[0], seen.down - before[1]) == (2, 1000), "its size, its bytes"


def test_a_damaged_local_copy_is_told_from_a_damaged_store(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    place = Place((tmp_path / "store" / "s").as_uri())
    copy = produce(place, {"fingerprint": "f"}, write_part).place.local()
    flip(copy / "data" / "part.bin")
    check = [
        sys.executable,
        "-c",
        "import sys; from midmask.store.artifact import load; from midmask.store.place import Place; "
        "load(Place(sys.argv[1])).place.local()",
    ]
    done = subprocess.run([*check, place.uri], capture_output=True, text=True, check=False)
    assert f"{copy / 'data' / 'part.bin'} is damaged" in done.stderr
    assert f"Delete {copy / 'data'} and run" in done.stderr


def test_files_without_a_record_are_not_deleted_and_one_without_digests_is_read_as_it_is(tmp_path):
    place = Place(str(tmp_path / "s"))
    (place / "file").write(b"x")
    with pytest.raises(UserError, match=r"holds files but no record\.json.*Delete it"):
        produce(place, {"fingerprint": "f"}, write_part)
    (place / RECORD).write(json.dumps({"fingerprint": "f", "result": {"n": 1}}).encode())
    assert (load(place).place / "file").read() == b"x"


def test_everything_is_on_disk_before_the_artifact_is_visible(tmp_path, monkeypatch):
    """In the order of the system's calls: each file before it gets its name, each folder before the last rename."""
    calls = []
    fsync, rename = os.fsync, os.rename

    def seen_fsync(descriptor):
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def seen_rename(source, target):
        calls.append(("rename", str(source)))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "rename", seen_rename)
    produce(Place(str(tmp_path / "s")), {"fingerprint": "f"}, write_part)
    (published,) = [source for kind, source in calls if kind == "rename"]
    before = [what for kind, what in calls[: calls.index(("rename", published))] if kind == "fsync"]
    assert {published, f"{published}/data"} <= set(before)
    for file in (f"{published}/data/part.bin", f"{published}/{RECORD}"):
        assert any(name.startswith(f"{file}.") and name.endswith(".draft") for name in before), file
    assert calls[-1] == ("fsync", str(tmp_path))


def test_a_full_store_and_a_read_only_one_are_one_line_and_nothing_is_torn(tmp_path):
    def fill(out):
        for number in range(9):
            if not (out / f"{number}").exists():
                (out / f"{number}").write(bytes(200_000))
        return {}

    with mounted(tmp_path / "disk", "size=1m") as disk:
        place = Place(str(disk / "step" / "f"))
        with pytest.raises(UserError, match=r"cannot write .*: No space left on device.*free some space") as caught:
            produce(place, {"fingerprint": "f"}, fill)
        assert "\n" not in str(caught.value)
        assert not place.exists()
        written = folder_of_attempts(place).sizes()
        assert len(written) == 5 and set(written.values()) == {200_000}
        subprocess.run(["mount", "-o", "remount,size=3m", disk], check=True)
        finished = produce(place, {"fingerprint": "f"}, fill)
        assert len(load(finished.address).record["files"]) == 9
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(UserError, match=r"cannot write .*: Read-only file system.*make it writable"):
            produce(Place(str(disk / "step" / "g")), {"fingerprint": "g"}, write_part)
        assert (load(finished.address).place / "0").size() == 200_000, "what is finished can be read"


def test_a_bucket_that_is_not_there_is_one_line():
    with object_store() as s3, pytest.raises(UserError, match=r"cannot write s3://other.*create the bucket"):
        produce(Place(f"s3://other/store/s?{s3}"), {"fingerprint": "f"}, write_part)
