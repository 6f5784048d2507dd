"""How long the leaderboard takes over a store of thousands of runs: the first start, a new server, a warm page.

python -m tests.benchmarks.dashboard --runs 5000 --params 130

The store is made in a temporary folder, with as many params a run as a recipe has. Seconds by the clock, from the
address to the drawn table with its script at an end, in headless Chromium; the median of the rounds.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.dashboards import many
from tests.dashboards.browser import ROOT, chromium, served
from tests.dashboards.pages import DRAWN, systems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--params", type=int, default=130, help="params of each run")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        home = Path(folder)
        uri = f"sqlite:///{home}/mlflow.db"
        many.fill(uri, home, given.runs, given.params)
        page, arguments = ROOT / "dashboards" / "leaderboard.py", ["--tracking-uri", uri]
        with served(page, arguments, home / "log") as address:
            print(f"first start, everything read from MLflow: {drawn(browser, address):.1f} s")
        with served(page, arguments, home / "log") as address:
            print(f"a new server, from the snapshot: {drawn(browser, address):.1f} s")
            views = {"warm page": "", "warm page, filtered and ordered": "/?protocol=protocol+1&order=Gain+per+hour"}
            for name, view in views.items():
                print(f"{name}: {statistics.median(drawn(browser, address + view) for _ in range(given.rounds)):.2f} s")


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
