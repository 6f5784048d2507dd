"""The pictures of the documentation, each of pages that run over a store which is made here: nothing else is needed.

records   the leaderboard and Compare over the records of docs/results: a minute
sweep     a small sweep from random weights, while it runs and when it has ended: some minutes
choose    a verdict on the documentation itself, and the page that searches with it: a quarter of an hour
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome

from tests.support.dashboards.browser import ROOT, served
from tests.support.dashboards.pages import wait_for_text
from tests.tools.screenshots.records import track_records
from tests.tools.screenshots.taking import Picture, take, take_file

PAGE = ROOT / "dashboards" / "leaderboard.py"
RECORDS = ROOT / "docs" / "results" / "records"
PATIENCE = 1800
"""Seconds for a job."""

SWEEP = (
    *("jobs/sweep_mask_ratio.py", "--set", 'corpus.packages=["numpy", "scipy"]', "--set", "pretrain.steps=300"),
    *("--set", "stages.0.train.steps=100"),
)
CHOOSE = ("jobs/choose_middle_training.py", "--budget", "12m")

LABELS = "?corpus=squad&split=test&protocol=10k+labels"
ASKED = "search?q=which+masks+does+ROM+compare+with+random+ones"

PICTURES = {
    picture.name: picture
    for picture in (
        Picture("leaderboard", LABELS, height=900),
        Picture("leaderboard-phone", LABELS, "dark", 390, 760),
        Picture("compare", "compare?place=squad+test", height=1000),
        Picture("methods", "?split=test&representation=dense", height=900),
        Picture("progress", "progress", height=700),
        Picture("training", "training", height=900),
        Picture("sweep", "sweep", height=1100),
        Picture("verdict", "verdict.html", height=1100),
        Picture("search", ASKED, height=1000),
    )
}

Scene = Callable[[Chrome, Path, Path], Iterator[Path]]
"""(browser, folder of stores, folder of pictures) -> the pictures, one by one."""


def records(browser: Chrome, home: Path, out: Path) -> Iterator[Path]:
    """MiniLM after more middle training, on SQuAD; and every method at demo size."""
    with _pages(home / "pretrained", lambda uri, own: track_records(uri, own, RECORDS / "pretrained", "minilm")) as at:
        for name in ("leaderboard", "leaderboard-phone", "compare"):
            yield take(browser, at, PICTURES[name], out)
    with _pages(home / "demo", lambda uri, own: track_records(uri, own, RECORDS / "demo", "tiny")) as at:
        yield take(browser, at, PICTURES["methods"], out)


def sweep(browser: Chrome, home: Path, out: Path) -> Iterator[Path]:
    """A job that runs, then its curves and its answer."""
    with _pages(home / "sweep") as at, _job(SWEEP, home / "sweep") as job:
        browser.get(f"{at}/progress")
        wait_for_text(browser, "left · best so far", PATIENCE)
        yield take(browser, at, PICTURES["progress"], out)
        _succeed(job)
        for name in ("training", "sweep"):
            yield take(browser, at, PICTURES[name], out)


def choose(browser: Chrome, home: Path, out: Path) -> Iterator[Path]:
    """The verdict as it opens from the disk, and two of its systems asked."""
    own = home / "choose"
    documents = own / "pages"  # without the records beside them, which are tables of millions of rows
    shutil.copytree(ROOT / "docs", documents, ignore=shutil.ignore_patterns("records", "*.png", "*.svg", "*.ipynb"))
    with _job((*CHOOSE, "--corpus", f"docs:{documents}", "--out", str(own / "verdict")), own) as job:
        _succeed(job)
    yield take_file(browser, own / "verdict", PICTURES["verdict"], out)
    with _pages(own, flags=("--verdict", str(own / "verdict"))) as at:
        browser.get(f"{at}/{ASKED}")
        wait_for_text(browser, "three ranks higher", PATIENCE)
        yield take(browser, at, PICTURES["search"], out)


SCENES: Mapping[str, Scene] = {"records": records, "sweep": sweep, "choose": choose}


@contextmanager
def _pages(home: Path, fill: Callable[[str, Path], None] | None = None, flags: tuple[str, ...] = ()) -> Iterator[str]:
    """The address of the pages over a store of this folder, which is filled before."""
    home.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{home}/mlflow.db"
    if fill is not None:
        fill(uri, home)
    with served(PAGE, ["--tracking-uri", uri, *flags], home / "streamlit.log") as address:
        yield address


@contextmanager
def _job(command: tuple[str, ...], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job that runs beside, with a store and runs of its own; it is ended with the block."""
    home.mkdir(parents=True, exist_ok=True)
    own = {"MIDMASK_STORAGE": str(home / "store"), "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db"}
    with open(home / "job.log", "wb") as log:
        job = subprocess.Popen([sys.executable, *command], cwd=ROOT, env={**os.environ, **own}, stdout=log, stderr=log)
    try:
        yield job
    finally:
        job.terminate()
        job.wait(60)


def _succeed(job: subprocess.Popen[bytes]) -> None:
    if job.wait(PATIENCE):
        raise SystemExit(f"the job {job.args} ended with exit code {job.returncode}; its log is beside its store")
