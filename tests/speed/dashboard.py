"""How long the leaderboard takes over a store of thousands of runs: the first start, a new server, a warm page.

python -m tests.speed.dashboard --runs 5000 --params 130

The store is made in a temporary folder, with as many params a run as a recipe has. First the parts of the work in this
process, in seconds of the processor, which a busy machine does not change much; then, unless --parts, the pages in
headless Chromium by the clock, from the address to the drawn table with its script at an end; at last every warm page,
its first paint, by the clock, and in seconds of the server's processor, light and dark. Medians of the rounds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from midmask.leaderboard.board import View, board_of
from midmask.leaderboard.entries import entries
from midmask.leaderboard.html import table
from midmask.leaderboard.marks import Marks
from midmask.leaderboard.rows import place_names, rows
from midmask.leaderboard.snapshot import refresh
from midmask.leaderboard.snapshot_file import load, save, snapshot_place
from midmask.tracking import StoreReader
from tests.support.dashboards import many
from tests.support.dashboards.browser import ROOT, appearance, chromium, served
from tests.support.dashboards.pages import DRAWN, PAGES, systems, wait_until_drawn

T = TypeVar("T")

FIRST_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
"""Milliseconds from the address to the first words or pictures."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--params", type=int, default=130, help="params of each run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", action="store_true", help="no browser")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        uri = f"sqlite:///{home}/mlflow.db"
        many.fill(uri, home, given.runs, given.params)
        parts(uri)
        if not given.parts:
            snapshot_place(uri).unlink()
            pages(uri, home, given.rounds)


def parts(uri: str) -> None:
    """What a server does behind a page, part by part."""
    place = snapshot_place(uri)
    whole = timed("everything read from MLflow", lambda: refresh(None, StoreReader(uri)))
    timed("snapshot written", lambda: save(whole, place))
    known = timed("snapshot read", lambda: load(place))
    timed("a look for changes where there are none", lambda: refresh(known, StoreReader(uri)))
    found = timed("rows and entries made of it", lambda: entries(rows(whole.newest_first())))
    place = max(place_names(row.place for entry in found for own in entry.rows.values() for row in own).items())
    measures, order = ("nDCG@10", "RR@10", "R@100"), f"{place[1]} nDCG@10"
    view = View(dict([place]), measures, {}, order, False, "none", "none", False)
    board = timed("board of all systems", lambda: board_of(found, view, lambda shown: Marks()))
    timed("table of a hundred", lambda: table(board, board.lines[:100]))


def timed(name: str, work: Callable[[], T]) -> T:
    began = time.process_time()
    made = work()
    print(f"{name}: {time.process_time() - began:.2f} s of the processor")
    return made


def pages(uri: str, home: Path, rounds: int) -> None:
    page, arguments = ROOT / "dashboards" / "leaderboard.py", ["--tracking-uri", uri]
    with chromium(home / "profile") as browser:
        with served(page, arguments, home / "log") as address:
            print(f"first start, everything read from MLflow: {drawn(browser, address):.1f} s")
        with served(page, arguments, home / "log") as address:
            print(f"a new server, from the snapshot: {drawn(browser, address):.1f} s")
            views = {"warm page": "", "warm page, filtered and ordered": "/?protocol=protocol+1&order=Gain+per+hour"}
            for name, view in views.items():
                print(f"{name}: {statistics.median(drawn(browser, address + view) for _ in range(rounds)):.2f} s")
            for name in PAGES:
                for theme in ("light", "dark"):
                    with appearance(browser, theme, 1280):
                        print(f"{name or 'leaderboard'}, {theme}: {warm(browser, f'{address}/{name}', rounds)}")


def warm(browser: Chrome, address: str, rounds: int) -> str:
    """A page that was drawn before: its first paint, until it stands, and what its server's processes take."""
    paint, clock, busy = [], [], []
    for _ in range(rounds + 1):
        browser.get("about:blank")
        before, began = served_seconds(), time.perf_counter()
        browser.get(address)
        wait_until_drawn(browser)
        clock.append(time.perf_counter() - began)
        busy.append(served_seconds() - before)
        paint.append(browser.execute_script(FIRST_PAINT) / 1000)
    middle = [statistics.median(each[1:]) for each in (paint, clock, busy)]
    return "first paint {:.2f} s, {:.2f} s by the clock, {:.2f} s of the server's processor".format(*middle)


def served_seconds() -> float:
    """Seconds of the processor that Streamlit, a child of this process, has had."""
    servers = [one for one in psutil.Process().children() if "streamlit" in one.cmdline()]
    return sum(sum(one.cpu_times()[:2]) for one in servers)


def drawn(browser: Chrome, address: str) -> float:
    """Seconds until the page at this address stands there."""
    browser.get("about:blank")
    began = time.perf_counter()
    browser.get(address)
    wait = WebDriverWait(browser, 600, poll_frequency=0.02)
    wait.until(lambda page: systems(page) and page.find_elements(By.CSS_SELECTOR, DRAWN))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
