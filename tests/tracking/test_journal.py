"""The journal of a run's values, without a store: owned by one process, whole after a kill, and taken over after it."""

import fcntl
import json
import logging
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from midmask.tracking.journal import Journal, JournalEntry, find_left_behind, journal_path

URI = "sqlite:////data/mlflow.db"
POINTS = JournalEntry("metrics", [["loss", 0.5, 1700000000000, 3], ["näh", float("inf"), 1, 0]])
TAGS = JournalEntry("tags", {"midmask.step": "a\nb"})


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return claimed(tmp_path / "home" / "mlflow-pending" / "run.jsonl")


def claimed(path: Path) -> Journal:
    found = Journal.claim(path)
    assert found is not None
    return found


def test_what_was_appended_comes_back_in_order_and_clearing_empties_it(journal: Journal) -> None:
    assert list(journal.entries()) == []
    for entry in (POINTS, TAGS, POINTS):
        journal.append(entry)
    assert list(journal.entries()) == [POINTS, TAGS, POINTS]
    journal.clear()
    assert list(journal.entries()) == [] and journal.path.read_bytes() == b""
    journal.append(TAGS)
    assert list(journal.entries()) == [TAGS]
    assert journal.path.read_bytes() == json.dumps(TAGS).encode() + b"\n", "no empty line stands before it"
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600, "only its user may read it"


def test_a_journal_has_one_owner_until_it_is_closed(journal: Journal) -> None:
    journal.append(TAGS)
    before = len(os.listdir("/proc/self/fd"))
    assert Journal.claim(journal.path) is None and Journal.claim(journal.path) is None
    assert len(os.listdir("/proc/self/fd")) == before, "a claim in vain leaves no file open"
    journal.close(remove=False)
    again = claimed(journal.path)
    assert list(again.entries()) == [TAGS]
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
        mine.append(TAGS)
        assert json.loads(path.read_text()) == list(TAGS)
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
    again.append(TAGS)
    with caplog.at_level(logging.WARNING):
        assert list(again.entries()) == [JournalEntry("tags", {"a": "b"}), TAGS]
    assert caplog.text.count("a half-written line is left out") == 1
    assert path.read_text().splitlines()[-1] == json.dumps(TAGS)


def test_what_the_store_refuses_is_kept_beside_the_journal(journal: Journal) -> None:
    path = journal.refuse([POINTS])
    assert path == journal.path.with_suffix(".refused") and journal.refuse([TAGS, TAGS]) == path
    assert [JournalEntry(*json.loads(line)) for line in path.read_text().splitlines()] == [POINTS, TAGS, TAGS]
    assert list(journal.entries()) == []


def test_journals_of_a_store_are_found_by_run_whatever_its_password(tmp_path: Path) -> None:
    secret = "postgresql://me:secret@host/db"
    for uri, run in ((secret, "b2"), (secret, "a1"), (URI, "c3")):
        claimed(journal_path(tmp_path, uri, run)).refuse([TAGS])
    found = find_left_behind(tmp_path, secret)
    assert [run for run, _ in found] == ["a1", "b2"]
    assert [path for _, path in found] == [journal_path(tmp_path, secret, run) for run in ("a1", "b2")]
    assert find_left_behind(tmp_path, "postgresql://me:other@host/db") == found
    assert [run for run, _ in find_left_behind(tmp_path, URI)] == ["c3"]
    assert find_left_behind(tmp_path / "none", URI) == []
    assert not any("secret" in path.name for path in (tmp_path / "mlflow-pending").iterdir())
