"""Pictures of all pages over a store of tracked runs: `make screenshots`.

python -m tests.tools.screenshots [--tracking-uri URI] [--verdict FOLDER] [--out FOLDER]
python -m tests.tools.screenshots --guides [SCENE …]

Each page is drawn light and dark, 1280 and 390 pixels wide, in headless Chromium: OUT/PAGE-THEME-WIDTH.png. With
--guides the pictures of the documentation are drawn, into docs/pictures, each of pages that run over a store which is
made here: nothing else is needed. Scenes:

records   the leaderboard and Compare over the records of docs/results: a minute
sweep     a small sweep from random weights, on our pages and on MLflow's: some minutes
choose    a verdict on the documentation itself, and the page that searches with it: a quarter of an hour
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from midmask.benchmark.records import CellRecord, read_records
from midmask.core.config import fingerprint
from midmask.store.place import Place
from midmask.tracking.names import collection_key, is_measure, metric_key, queries_key, resolve_tracking_uri
from midmask.tracking.reading import read_runs
from midmask.tracking.runs import Tracker
from midmask.tracking.store import Patience
from tests.support.dashboards.browser import PAGE, ROOT, appearance, chromium, served
from tests.support.dashboards.pages import PAGES, wait_for, wait_for_text, wait_until_drawn
from tests.support.waiting import answers, free_port, wait_until

RECORDS = ROOT / "docs" / "results" / "records"
PATIENCE, SETTLES = 1800, 5
"""Seconds for a job; seconds after which MLflow's tables and charts are drawn, once their texts are there."""

SWEEP = (
    *("jobs/sweep_mask_ratio.py", "--set", 'corpus.packages=["numpy", "scipy"]', "--set", "pretrain.steps=300"),
    *("--set", "stages.0.train.steps=100"),
)
CHOOSE = ("jobs/choose_middle_training.py", "--budget", "12m")
TALLEST, LEAST = 6000, 700
"""Pixels; a page with a hundred systems is cut at the first, and an empty one is as tall as the second."""

BOTTOM = """return Math.max(...[...document.querySelectorAll("[data-testid=stMainBlockContainer] *")]
    .filter(one => one.checkVisibility()).map(one => one.getBoundingClientRect().bottom))"""
"""Where what is seen of a page ends, in pixels."""


class Picture(NamedTuple):
    """page: its path, with what stands behind its address. height: pixels; 0: the whole page."""

    name: str
    page: str
    theme: str = "light"
    width: int = 1280
    height: int = 0


LABELS = "?corpus=squad&split=test&find=10k+labels"
ASKED = "search?q=which+masks+does+ROM+compare+with+random+ones"
HEIGHTS = {
    **{("leaderboard", LABELS): 900, ("compare", "compare?place=squad+test"): 1000},
    **{("methods", "?split=test&find=dense"): 900, ("sweep", "sweep"): 1100, ("search", ASKED): 1000},
    ("verdict", "verdict.html"): 1100,
}
PICTURES = {name: Picture(name, page, height=height) for (name, page), height in HEIGHTS.items()}
PICTURES |= {name: Picture(name, "", height=640) for name in ("mlflow-runs", "mlflow-trials", "mlflow-parallel")}
PICTURES["leaderboard-phone"] = Picture("leaderboard-phone", LABELS, "dark", 390, 760)


def take(browser: Chrome, address: str, picture: Picture, folder: Path) -> Path:
    """Draws a page, as tall as its content where no height is given; the file."""
    path = folder / f"{picture.name}.png"
    with appearance(browser, picture.theme, picture.width, picture.height or TALLEST):
        browser.get(f"{address}/{picture.page}")
        wait_until_drawn(browser)
        needed = int(browser.execute_script(BOTTOM)) + 1
    with appearance(browser, picture.theme, picture.width, picture.height or min(TALLEST, max(needed, LEAST))):
        wait_until_drawn(browser)
        browser.save_screenshot(str(path))
    return path


def records(browser: Chrome, home: Path, out: Path) -> Iterator[Path]:
    """MiniLM after more middle training, on SQuAD; and every method at demo size."""
    with _pages(home / "pretrained", lambda uri, own: track_records(uri, own, RECORDS / "pretrained", "minilm")) as at:
        for name in ("leaderboard", "leaderboard-phone", "compare"):
            yield take(browser, at, PICTURES[name], out)
    with _pages(home / "demo", lambda uri, own: track_records(uri, own, RECORDS / "demo", "tiny")) as at:
        yield take(browser, at, PICTURES["methods"], out)


def sweep(browser: Chrome, home: Path, out: Path) -> Iterator[Path]:
    """Its answer, and what MLflow's pages make of its runs."""
    with _pages(home / "sweep") as at, _job(SWEEP, home / "sweep") as job:
        _succeed(job)
        yield take(browser, at, PICTURES["sweep"], out)
    with _mlflow(home / "sweep") as at:
        yield from mlflow(browser, at, home / "sweep", out)


def mlflow(browser: Chrome, page: str, home: Path, out: Path) -> Iterator[Path]:
    """The sweep's run with its trials; these by their measure, from the filter of the guide; and compared."""
    runs = read_runs(f"sqlite:///{home}/mlflow.db")
    parent = next(run for run in runs if run.tags["midmask.step"] == "sweep")
    sweep, key = parent.tags["midmask.fingerprint"], next(filter(is_measure, parent.metrics))
    trials = [run for run in runs if run.tags.get("midmask.sweep") == sweep]

    def press(element: str, by: str = By.CSS_SELECTOR) -> None:
        time.sleep(SETTLES)
        wait_for(browser, lambda page: [page.find_element(by, element).click()], PATIENCE)

    def shot(name: str) -> Path:
        time.sleep(SETTLES)
        browser.save_screenshot(str(out / f"{name}.png"))
        return out / f"{name}.png"

    with appearance(browser, "light", 1280, PICTURES["mlflow-runs"].height):
        browser.get(page)
        wait_for_text(browser, "matching runs", patience=PATIENCE)
        wait_for_text(browser, parent.name, patience=PATIENCE)
        press("[data-component-id='mlflow.assistant.chat_panel.close']")
        press(
            f"//*[@role='row'][contains(., '{parent.name}')]//button[contains(@data-component-id, 'runnamecell')]",
            By.XPATH,
        )
        yield shot("mlflow-runs")
        search = browser.find_element(By.CSS_SELECTOR, "input[placeholder^='metrics.']")
        search.send_keys(f"tags.midmask.step = 'trial' and tags.midmask.sweep = '{sweep}'", Keys.ENTER)
        wait_for_text(browser, f"{len(trials) + 1} matching runs", patience=PATIENCE)  # below the sweep's run
        press(f"[data-testid='sort-header-{key}']")
        wait_for_text(browser, f"{len(trials)} matching runs", patience=PATIENCE)
        yield shot("mlflow-trials")
        press("[aria-label='Select all runs']")
        press("[data-testid=runs-compare-button]")
        wait_for_text(browser, "Parallel Coordinates Plot", patience=PATIENCE)
        metrics = browser.find_elements(By.CSS_SELECTOR, "input.du-bois-light-select-selection-search-input")[1]
        metrics.send_keys(Keys.BACKSPACE, key, Keys.ENTER, Keys.ESCAPE)
        yield shot("mlflow-parallel")


def choose(browser: Chrome, home: Path, out: Path) -> Iterator[Path]:
    """The verdict as it opens from the disk, and two of its systems asked."""
    own = home / "choose"
    documents = own / "pages"  # without the records beside them, which are tables of millions of rows
    shutil.copytree(ROOT / "docs", documents, ignore=shutil.ignore_patterns("records", "*.png", "*.svg", "*.ipynb"))
    with _job((*CHOOSE, "--corpus", f"docs:{documents}", "--out", str(own / "verdict")), own) as job:
        _succeed(job)
    picture = PICTURES["verdict"]  # a file, which needs no server
    with appearance(browser, picture.theme, picture.width, picture.height):
        browser.get((own / "verdict" / picture.page).as_uri())
        browser.save_screenshot(str(out / f"{picture.name}.png"))
    yield out / f"{picture.name}.png"
    with _pages(own, flags=("--verdict", str(own / "verdict"))) as at:
        browser.get(f"{at}/{ASKED}")
        wait_for_text(browser, "three ranks higher", patience=PATIENCE)
        yield take(browser, at, PICTURES["search"], out)


SCENES = {"records": records, "sweep": sweep, "choose": choose}
"""Name -> of a browser, a folder of stores and one of pictures, the pictures, one by one."""


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
def _mlflow(home: Path) -> Iterator[str]:
    """The address that `midmask ui` prints over the store of this folder, while it serves MLflow's pages."""
    port, own = free_port(), {"MIDMASK_HOME": str(home), "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db"}
    command, log = [str(Path(sys.executable).with_name("midmask")), "ui", "--port", str(port)], home / "mlflow.log"
    with open(log, "wb") as output:
        env = {**os.environ, **own}
        ui = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, env=env, text=True, start_new_session=True
        )
    assert ui.stdout is not None
    try:
        page = ui.stdout.readline().strip()
        wait_until(partial(answers, f"http://127.0.0.1:{port}/health"), ui, log)
        yield page
    finally:
        os.killpg(ui.pid, signal.SIGTERM)
        ui.wait(60)


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


def track_records(uri: str, home: Path, records: Path, backbone: str) -> None:
    """A benchmark's records as tracked runs, one for each, with measures, values per query and costs."""
    with Tracker(uri, home, Patience(answer=PATIENCE)) as tracker, tempfile.TemporaryDirectory() as folder:
        for number, record in enumerate(read_records(Place(str(records))).values()):
            _track(tracker, record, Path(folder) / f"{number}", backbone)
        tracker.find("none", step="none")  # waits until all is sent: the files go when this returns


def _track(tracker: Tracker, record: CellRecord, folder: Path, backbone: str) -> None:
    first = record.results[0]
    key = first.key
    tags = {
        **{"job": "benchmark_middle_training", "step": "evaluate", "recipe": key.system, "corpus": first.corpus},
        **{"objective": key.system, "representation": key.representation, "pretrain_on": key.collection},
        **{"seed": str(first.seed), "fingerprint": record.measurement.fingerprint},
    }
    if key.system != "bm25":
        tags |= {"backbone": backbone, "protocol": key.setting}
    run = tracker.run(
        f"{key.system}, seed {first.seed}", tags={f"midmask.{name}": value for name, value in tags.items()}, params={}
    )
    folder.mkdir()
    for result in record.results:
        corpus, split = result.corpus, result.split
        queries = len(set(result.per_query["query_id"].to_pylist()))
        # a record has no fingerprint of its collection, so the name stands for it
        run.tag({collection_key(corpus): fingerprint(corpus), queries_key(corpus, split): f"{queries}"})
        run.log({metric_key(corpus, split, name): mean for name, mean in result.measures.items()}, 0)
        path = folder / f"{corpus}.{split}.parquet"
        pq.write_table(result.per_query, path)
        run.log_file(path, "per_query")
    if first.costs is not None:
        run.log(first.costs.metrics(), 0)
    run.finish()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.screenshots", description=__doc__)
    parser.add_argument("--tracking-uri", help="the MLflow store; default MLFLOW_TRACKING_URI, else ./mlflow.db")
    parser.add_argument("--verdict", type=Path, help="a verdict's folder, for the page Search")
    parser.add_argument("--out", type=Path, help="default: screenshots, with --guides docs/pictures")
    parser.add_argument("--guides", nargs="*", choices=SCENES, help="the pictures of the documentation; default: all")
    flags = parser.parse_args()
    out = flags.out or ROOT / ("screenshots" if flags.guides is None else "docs/pictures")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        if flags.guides is None:
            made = all_pages(browser, flags, Path(folder), out)
        else:
            made = (path for name in flags.guides or SCENES for path in SCENES[name](browser, Path(folder), out))
        for path in made:
            print(path, flush=True)
    return 0


def all_pages(browser: Chrome, flags: argparse.Namespace, home: Path, out: Path) -> Iterator[Path]:
    options = ["--tracking-uri", resolve_tracking_uri(flags.tracking_uri, ROOT)]
    options += ["--verdict", str(flags.verdict)] if flags.verdict else []
    with served(PAGE, options, home / "streamlit.log") as address:
        for page, theme, width in product(PAGES, ("light", "dark"), (1280, 390)):
            picture = Picture(f"{page or 'leaderboard'}-{theme}-{width}", page, theme, width)
            yield take(browser, address, picture, out)


if __name__ == "__main__":
    sys.exit(main())
