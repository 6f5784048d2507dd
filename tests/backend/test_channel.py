"""Reports reach the driver once and in order, whoever dies in between; none of them can end the work."""

import logging
from itertools import pairwise
from pathlib import Path

import pytest

from midmask.backend.mailbox import Post


def test_what_was_accepted_outlives_the_process_and_counts_once(tmp_path: Path) -> None:
    path = str(tmp_path / "reports.db")
    first = Post(path)
    first.push("w", 0, [("a", {"n": 0}), ("a", {"n": 1})])
    [(number, *_), _] = first.take(0)
    assert len(first.take(number)) == 1, "what was fetched is forgotten once the driver says that it has it"
    again = Post(path)
    again.push("w", 0, [("a", {"n": 0}), ("a", {"n": 1}), ("a", {"n": 2})])  # its answer was lost
    again.push("other", 5, [("b", {"n": 5})])  # the oldest were dropped
    found = again.take(number)
    assert [(source, row["n"]) for _, source, row in found] == [("a", 1), ("a", 2), ("b", 5)]
    assert all(after > before for (before, *_), (after, *_) in pairwise(found))


def test_a_disk_that_is_full_leaves_reports_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    post = Post(str(tmp_path / "missing" / "reports.db"))
    post.push("w", 0, [("a", {"n": 0})])
    assert [row for _, _, row in post.take(0)] == [{"n": 0}]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "in memory only" in warning
