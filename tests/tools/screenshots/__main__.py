"""Pictures of all pages over a store of tracked runs: `make screenshots`.

python -m tests.tools.screenshots [--tracking-uri URI] [--verdict FOLDER] [--out FOLDER]
python -m tests.tools.screenshots --guides [SCENE …]

Each page is drawn light and dark, 1280 and 390 pixels wide, in headless Chromium: OUT/PAGE-THEME-WIDTH.png. With
--guides the pictures of the documentation are drawn, into docs/pictures, over stores that are made for them (scenes:
records, sweep, choose; all of them in half an hour).
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from selenium.webdriver import Chrome

from midmask.tracking.names import resolve_tracking_uri
from tests.support.dashboards.browser import PAGE, ROOT, chromium, served
from tests.support.dashboards.pages import PAGES
from tests.tools.screenshots.guides import SCENES, Picture, take

THEMES, WIDTHS = ("light", "dark"), (1280, 390)


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
        for page, theme, width in product(PAGES, THEMES, WIDTHS):
            picture = Picture(f"{page or 'leaderboard'}-{theme}-{width}", page, theme, width)
            yield take(browser, address, picture, out)


if __name__ == "__main__":
    sys.exit(main())
