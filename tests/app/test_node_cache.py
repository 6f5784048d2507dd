"""Copies of remote artifacts on this machine: which exceed a limit, and that a job copies again what was deleted."""

import os
import time
from pathlib import Path

import pytest

from midmask.app.flags import Parser
from midmask.app.node_cache import Copy, find_excess
from midmask.artifact import Place
from midmask.commands import gc
from midmask.commands.gc import DAY


def run_gc(*flags: str) -> None:
    parser = Parser(prog="midmask gc")
    gc.add_flags(parser)
    gc.work(parser.parse_args(["--cache", *flags]))


def set_last_use(path: Path, days: float) -> None:
    at = time.time() - days * DAY
    os.utime(path, (at, at))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDMASK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    """Three remote folders of a megabyte each."""
    for name in "abc":
        (tmp_path / "store" / name).mkdir(parents=True)
        (tmp_path / "store" / name / "file").write_bytes(b"x" * 2**20)
    return [Place(f"file://{tmp_path}/store/{name}") for name in "abc"]


def test_the_copies_used_least_recently_go_and_are_copied_again(
    cache: Path, places: list[Place], capsys: pytest.CaptureFixture[str]
) -> None:
    copies = [place.local() for place in places]
    (cache / "recalled.json").write_text("{}")
    for copy, days in zip(copies, (3, 5, 4), strict=True):
        set_last_use(copy, days)
    run_gc("--limit", "2MiB")
    assert all(copy.exists() for copy in copies) and "Nothing was deleted" in capsys.readouterr().out
    run_gc("--limit", "2MiB", "--delete")
    assert [copy.exists() for copy in copies] == [True, False, True]
    assert sorted(path.name for path in cache.iterdir()) == sorted([copies[0].name, copies[2].name, "recalled.json"])
    assert (places[1].local() / "file").read_bytes() == b"x" * 2**20


def test_a_copy_in_use_stays(cache: Path, places: list[Place]) -> None:
    copies = [place.local() for place in places]
    for copy in copies:
        set_last_use(copy, 3)
    places[0].local()
    run_gc("--limit", "0MiB", "--delete")
    assert [copy.exists() for copy in copies] == [True, False, False]


def test_drafts_of_killed_processes_go_and_links_stay(cache: Path, tmp_path: Path) -> None:
    for name, days in (("tmpdead", 2), ("tmpnew", 0)):
        (cache / name).mkdir(parents=True)
        set_last_use(cache / name, days)
    (tmp_path / "elsewhere").mkdir()
    (cache / "tmplink").symlink_to(tmp_path / "elsewhere")
    set_last_use(tmp_path / "elsewhere", 9)
    run_gc("--delete")
    assert sorted(path.name for path in cache.iterdir()) == ["tmplink", "tmpnew"]


def test_what_fits_stays_even_after_a_large_one() -> None:
    copies = [Copy(Path(f"/{size}"), size, used) for size, used in ((4, 30.0), (9, 20.0), (3, 10.0))]
    assert find_excess(copies, 8, 1e9) == [copies[1]]
