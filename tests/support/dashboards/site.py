"""The store that the browser's tests share, with the pages over it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from midmask.tracking import Tracker
from tests.support.choice.searched import write_verdict
from tests.support.dashboards import compared, swept, tracked
from tests.support.dashboards.browser import PAGE, served


@dataclass(frozen=True)
class Site:
    """Where the pages are served, the store, and the verdict's folder."""

    address: str
    uri: str
    verdict: Path


@contextmanager
def everything_served(home: Path, worked: Path) -> Iterator[Site]:
    """Recipes with their artifacts, a benchmark, two sweeps, runs that go on or failed, and a verdict.

    Args:
        worked: the folder of `worked_store`.
    """
    shutil.copy(worked / "mlflow.db", home)
    uri = f"sqlite:///{home}/mlflow.db"
    tracked.everything(uri, home)
    with Tracker(uri, home, tracked.QUICK) as tracker:
        compared.benchmark(tracker)
        swept.track(tracker)
    verdict = write_verdict(home / "verdict", extra=30)
    flags = ["--tracking-uri", uri, "--mlflow-ui", "http://127.0.0.1:5999", "--verdict", str(verdict)]
    with served(PAGE, flags, home / "streamlit.log") as address:
        yield Site(address, uri, verdict)
