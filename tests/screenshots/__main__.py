"""Pictures of all pages over a store of tracked runs: `make screenshots`.

python -m tests.screenshots [--tracking-uri URI] [--verdict FOLDER] [--out FOLDER] [--guides]

Each page is drawn light and dark, 1280 and 390 pixels wide, in headless Chromium: OUT/PAGE-THEME-WIDTH.png. With
--guides only the pictures that the documentation shows are drawn, into docs/pictures.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from selenium.webdriver import Chrome

from midmask.tracking import resolve_tracking_uri
from tests.support.dashboards.browser import ROOT, appearance, chromium, served
from tests.support.dashboards.pages import wait_until_drawn

PAGE = ROOT / "dashboards" / "leaderboard.py"
PAGES = ("leaderboard", "compare", "sweep", "progress", "training", "embeddings", "lineage", "search")
THEMES, WIDTHS = ("light", "dark"), (1280, 390)
TALLEST = 6000
"""Pixels; a page with a hundred systems is cut there."""


LEAST = 700

BOTTOM = """return Math.max(...[...document.querySelectorAll("[data-testid=stMainBlockContainer] *")]
    .map(one => one.getBoundingClientRect().bottom))"""
"""Where the content of a page ends, in pixels."""


class Picture(NamedTuple):
    """page: with what stands behind its address. height: pixels; 0: the whole page."""

    name: str
    page: str
    theme: str
    width: int
    height: int = 0


GUIDES = (
    Picture("leaderboard", "", "light", 1280, 860),
    Picture("leaderboard-phone", "", "dark", 390, 700),
    Picture("compare", "compare", "light", 1280, 1000),
    Picture("training", "training", "light", 1280, 900),
)
"""The pictures that documentation pages show."""


def main() -> int:
    flags = arguments()
    uri = resolve_tracking_uri(flags.tracking_uri, ROOT)
    out = flags.out or ROOT / ("docs/pictures" if flags.guides else "screenshots")
    out.mkdir(parents=True, exist_ok=True)
    wanted = GUIDES if flags.guides else tuple(all_pictures())
    options = ["--tracking-uri", uri, *(["--verdict", str(flags.verdict)] if flags.verdict else [])]
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        with served(PAGE, options, Path(folder) / "streamlit.log") as address:
            for picture in wanted:
                path = out / f"{picture.name}.png"
                take(browser, f"{address}/{picture.page}", picture, path)
                print(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("--tracking-uri", help="the MLflow store; default MLFLOW_TRACKING_URI, else ./mlflow.db")
    parser.add_argument("--verdict", type=Path, help="a verdict's folder, for the page Search")
    parser.add_argument("--out", type=Path, help="default: screenshots, with --guides docs/pictures")
    parser.add_argument("--guides", action="store_true", help="the pictures of the documentation")
    return parser.parse_args()


def all_pictures() -> list[Picture]:
    return [
        Picture(f"{page}-{theme}-{width}", "" if page == PAGES[0] else page, theme, width)
        for page in PAGES
        for theme in THEMES
        for width in WIDTHS
    ]


def take(browser: Chrome, address: str, picture: Picture, path: Path) -> None:
    """Draws a page, as tall as its content where no height is given, and keeps it as a PNG file."""
    height = picture.height or TALLEST
    with appearance(browser, picture.theme, picture.width, height):
        browser.get(address)
        wait_until_drawn(browser)
        needed = int(browser.execute_script(BOTTOM)) + 1
    with appearance(browser, picture.theme, picture.width, picture.height or min(TALLEST, max(needed, LEAST))):
        wait_until_drawn(browser)
        browser.save_screenshot(str(path))


if __name__ == "__main__":
    sys.exit(main())
