"""Which artifacts tracked runs need, and deletions that are killed at any moment."""

import itertools
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from mlflow import MlflowClient

from midmask.app.garbage import Stored, delete, needed_fingerprints, read_contents, sort_contents
from midmask.store.artifact import RECORD, Artifact, folder_of_attempts, load, produce
from midmask.store.place import Place
from midmask.tracking.reading import References, read_references
from midmask.tracking.runs import Tracker
from tests.support.dashboards.tracked import QUICK
from tests.support.object_store import object_store

FINGERPRINT = "0123456789abcdef"
FILES = ("a", "b", "sub/c")
LATER = 4e9
"""Seconds since 1970: the year 2096, when everything is old."""


def make(out: Place) -> dict[str, Any]:
    """As a step does: one file is taken for a sign that the others are there."""
    if not (out / "b").exists():
        for name in FILES:
            (out / name).write(name.encode())
    return {}


def make_artifact(storage: Place) -> Artifact:
    return produce(storage / "pretrain" / FINGERPRINT, {"step": "pretrain", "fingerprint": FINGERPRINT}, make)


def leave_attempt(storage: Place, **files: bytes) -> Place:
    """The attempt of a process that has ended."""
    place = folder_of_attempts(storage / "pretrain" / FINGERPRINT) / "0001-aaaaaaaa"
    for name, data in files.items():
        (place / name).write(data)
    return place


def is_whole(artifact: Artifact) -> bool:
    return [(artifact.place / name).read().decode() for name in FILES] == list(FILES)


def find_unneeded(storage: Place) -> list[Stored]:
    return sort_contents(read_contents(storage, LATER), References(), LATER).unneeded


@pytest.fixture(params=["path", "uri"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(str(tmp_path / "store") if request.param == "path" else f"file://{tmp_path}/store")


def test_an_artifact_and_an_attempt_are_listed_and_deleted(storage: Place) -> None:
    make_artifact(storage)
    size = storage.size()
    leave_attempt(storage, half=b"12345")
    artifact, attempt = find_unneeded(storage)
    assert (artifact.address, artifact.size) == (f"pretrain/{FINGERPRINT}", size)
    assert attempt.is_attempt and (attempt.size, attempt.fingerprint) == (5, FINGERPRINT)
    delete(storage, attempt)
    assert is_whole(load(storage / "pretrain" / FINGERPRINT))
    delete(storage, artifact)
    assert not storage.sizes() and not (storage / "pretrain").names()
    assert is_whole(make_artifact(storage))


class Killed(BaseException):
    """Ends a call as a kill would: no handler of errors sees it."""


def interrupt_deletion(storage: Place, one: Stored, number: int) -> bool:
    """Whether a deletion was killed before the change of the disk with this number; False: there are fewer."""
    counts = itertools.count()

    def count() -> None:
        if next(counts) == number:
            raise Killed

    def count_calls(call: Any) -> Any:
        def first_count(*args: Any, **named: Any) -> Any:
            count()
            return call(*args, **named)

        return first_count

    def remove_slowly(folder: str) -> None:
        for name in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            count()
            name.unlink()
        shutil_rmtree(folder)

    shutil_rmtree = shutil.rmtree
    with (
        mock.patch.object(Place, "delete", count_calls(Place.delete)),
        mock.patch.object(Place, "write", count_calls(Place.write)),
        mock.patch("os.rename", count_calls(os.rename)),
        mock.patch("shutil.rmtree", remove_slowly),
    ):
        try:
            delete(storage, one)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("then", ["a job works in it", "it is ended by the next"])
@pytest.mark.parametrize("kind", ["artifact", "attempt"])
def test_a_deletion_may_be_killed_before_any_change(storage: Place, kind: str, then: str) -> None:
    for number in range(100):
        if kind == "artifact":
            make_artifact(storage)
        else:
            leave_attempt(storage, a=b"a", b=b"b", **{"sub/c": b"sub/c"})
        (one,) = find_unneeded(storage)
        if not interrupt_deletion(storage, one, number):
            break
        if then == "a job works in it":
            assert is_whole(make_artifact(storage)), f"killed before change {number}"
            storage.delete()
        for rest in find_unneeded(storage):
            delete(storage, rest)
        assert not storage.sizes(), f"killed before change {number}"
    assert number >= 3


@pytest.mark.system
def test_an_object_store_is_listed_and_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path))
    with object_store() as options:
        storage = Place(f"s3://bucket/{tmp_path.name}?{options}")  # moto's memory is that of the process
        assert is_whole(make_artifact(storage))
        (one,) = find_unneeded(storage)
        assert one.attempt_name and one.changed > 1e9
        assert interrupt_deletion(storage, one, 4)
        (rest,) = find_unneeded(storage)
        delete(storage, rest)
        assert not storage.sizes()
        assert is_whole(make_artifact(storage))


def test_what_cannot_be_read_and_what_is_no_artifact_stays(storage: Place) -> None:
    make_artifact(storage)
    (storage / "pretrain" / FINGERPRINT / RECORD).write(b"{")
    (storage / "optuna.db").write(b"study")
    (storage / "tune" / "trial" / "state").write(b"state")
    assert not find_unneeded(storage)


def an_artifact(step: str, fingerprint: str, *names: str) -> Stored:
    return Stored(f"{step}/{fingerprint}", 1, 0.0, frozenset(names))


def test_what_a_needed_artifact_was_made_from_is_needed_and_what_was_made_of_it_is_not() -> None:
    artifacts = [
        an_artifact("initial", "start"), an_artifact("pretrain", "quarter", "start"),
        an_artifact("finetune", "probe", "quarter"), an_artifact("pretrain", "whole", "start", "quarter"),
        an_artifact("finetune", "trial", "whole"), an_artifact("evaluate", "tried", "trial"),
    ]  # fmt: skip
    assert needed_fingerprints(artifacts, {"trial", "elsewhere"}) == {"trial", "whole", "quarter", "start"}


def test_an_encoding_of_a_finished_search_is_spare_and_one_that_waits_for_its_search_is_not() -> None:
    artifacts = [an_artifact("encode", "read"), an_artifact("search", "ranked", "read"), an_artifact("encode", "waits")]
    tracked = References(named=frozenset({"ranked", "waits"}))
    assert sort_contents(artifacts, tracked, 1.0).needed == artifacts
    found = sort_contents(artifacts, tracked, 1.0, intermediates=True)
    assert (found.needed, found.unneeded) == (artifacts[1:], artifacts[:1])


def test_what_runs_and_registered_models_of_several_stores_name_is_read(tmp_path: Path, empty_store: Path) -> None:
    one, other, third = (digit * 16 for digit in "abc")
    homes = [tmp_path / "a", tmp_path / "b"]
    uris = [f"sqlite:///{home}/mlflow.db" for home in homes]
    for home in homes:
        home.mkdir()
        shutil.copy(empty_store, home / "mlflow.db")
    with Tracker(uris[0], homes[0], QUICK) as tracker:
        place = {"midmask.artifact": f"s3://bucket/store/evaluate/{one}?region=x"}
        tracker.run("trial", tags={"midmask.step": "trial", **place}, params={}).finish()
        tracker.run("late", tags={}, params={"backbone.name": other})
    client = MlflowClient(uris[1])
    client.create_experiment("midmask")
    client.create_registered_model("kept")
    client.create_model_version("kept", "file:///nowhere", tags={"midmask.fingerprint": third})
    found = read_references(uris)
    assert found.named >= {one, other, third}
    assert found.storages == {"s3://bucket/store?region=x"}
    assert found.runs == 2 and found.running == ("late",)
