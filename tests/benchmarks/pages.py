"""The leaderboard over a store of thousands of runs."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from selenium.webdriver import Chrome

from midmask.leaderboard.board import View, board_of
from midmask.leaderboard.entries import entries
from midmask.leaderboard.html import table
from midmask.leaderboard.marks import Marks
from midmask.leaderboard.rows import place_names, rows
from midmask.leaderboard.snapshot import refresh
from midmask.leaderboard.snapshot_file import load, save, snapshot_place
from midmask.tracking import StoreReader
from tests.benchmarks.harness import Bench, T
from tests.support.dashboards import many
from tests.support.dashboards.browser import ROOT, chromium, served
from tests.support.dashboards.pages import PAGES, wait_until_drawn


def leaderboard(bench: Bench) -> None:
    """5,000 runs of 130 params in SQLite: what a server does, part by part, in seconds of the processor; then each warm
    page, by the clock and in seconds of the server's processor.
    """
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        many.fill(uri, Path(folder), bench.size(5000, 100), 130)
        parts(bench, uri)
        page, arguments = ROOT / "dashboards" / "leaderboard.py", ["--tracking-uri", uri]
        with chromium(Path(folder) / "profile") as browser, served(page, arguments, Path(folder) / "log") as address:
            for name in bench.size(tuple(PAGES), ("",)):
                warm(bench, name or "leaderboard", browser, f"{address}/{name}")


def parts(bench: Bench, uri: str) -> None:
    def timed(name: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        made = work()
        bench.say(f"{name}: {time.process_time() - began:.2f} s of the processor")
        return made

    place = snapshot_place(uri)
    whole = timed("everything read from MLflow", lambda: refresh(None, StoreReader(uri)))
    timed("snapshot written", lambda: save(whole, place))
    known = timed("snapshot read", lambda: load(place))
    timed("a look for changes where there are none", lambda: refresh(known, StoreReader(uri)))
    found = timed("rows and entries made of it", lambda: entries(rows(whole.newest_first())))
    shown = max(place_names(row.place for entry in found for own in entry.rows.values() for row in own).items())
    view = View(dict([shown]), ("nDCG@10", "RR@10", "R@100"), {}, f"{shown[1]} nDCG@10", False, "none", "none", False)
    board = timed("board of all systems", lambda: board_of(found, view, lambda shown: Marks()))
    timed("table of a hundred", lambda: table(board, board.lines[:100]))


def warm(bench: Bench, name: str, browser: Chrome, address: str) -> None:
    """A page that was drawn before."""
    clock, busy = [], []
    for _ in range(bench.rounds + 1):
        browser.get("about:blank")
        before, began = served_seconds(), time.perf_counter()
        browser.get(address)
        wait_until_drawn(browser)
        clock.append(time.perf_counter() - began)
        busy.append(served_seconds() - before)
    shown, spent = (statistics.median(each[1:]) for each in (clock, busy))
    bench.say(f"{name}, warm: {shown:.2f} s, goal 2; {spent:.2f} s of the server's processor, goal 1")


def served_seconds() -> float:
    """Seconds of the processor that Streamlit, a child of this process, has had."""
    servers = [one for one in psutil.Process().children() if "streamlit" in one.cmdline()]
    return sum(sum(one.cpu_times()[:2]) for one in servers)
