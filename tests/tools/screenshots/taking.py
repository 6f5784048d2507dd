"""Draws pages in headless Chromium and keeps them as PNG files."""

from pathlib import Path
from typing import NamedTuple

from selenium.webdriver import Chrome

from tests.support.dashboards.browser import appearance
from tests.support.dashboards.pages import wait_until_drawn

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


def take_file(browser: Chrome, place: Path, picture: Picture, folder: Path) -> Path:
    """Draws an HTML file that lies in a folder, which needs no server."""
    path = folder / f"{picture.name}.png"
    with appearance(browser, picture.theme, picture.width, picture.height):
        browser.get((place / picture.page).as_uri())
        browser.save_screenshot(str(path))
    return path
