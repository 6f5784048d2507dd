"""Damaged artifacts, and stores that are full, read-only or not there: one line each, and nothing torn."""

import json
import os
import subprocess
import sys

import pytest

from midmask.errors import UserError
from midmask.store.artifact import folder_of_attempts, load, produce
from midmask.store.digests import RECORD
from midmask.store.place import Place
from tests.support.disks import mounted
from tests.support.object_store import Requests, object_store


def write_part(out):
    (out / "data" / "part.bin").write(b"0123456789" * 100)
    return {"n": 1}


def flip(path):
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(bytes(data))


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("kind", ["path", "file"])
@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("data/part.bin", flip, r"part\.bin is damaged: .* changed.*Delete .*/s"),
        ("data/part.bin", cut, r"part\.bin is damaged: .*997 bytes of 1,000.*Delete .*/s"),
        ("data/part.bin", os.unlink, r"part\.bin is damaged: .* missing.*Delete .*/s"),
        (RECORD, cut, r"record\.json is damaged: .*Delete .*/s"),
    ],
)
def test_damage_is_one_line_that_names_the_file_and_what_to_type(kind, name, harm, message, tmp_path, monkeypatch):
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    if kind == "path":
        monkeypatch.setenv("MIDMASK_VERIFY", "1")
    root = Place(str(tmp_path / "store") if kind == "path" else (tmp_path / "store").as_uri())
    produce(root / "s", {"fingerprint": "f"}, write_part)
    harm(next(iter(sorted((tmp_path / "store").rglob(name), key=lambda path: len(path.parts)))))
    for use in (lambda place: (place / "data" / "part.bin").read(), lambda place: (place / "data").local()):
        with pytest.raises(UserError, match=message) as caught:
            use(load(root / "s").place)
        assert "\n" not in str(caught.value)


def test_the_contents_of_a_local_file_are_checked_on_request_alone(tmp_path):
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
