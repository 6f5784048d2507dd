"""The documentation site, built as `make docs` builds it: no link that leads nowhere, nothing from another host."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import midmask
from tests.support.docs.markdown import ROOT

pytestmark = pytest.mark.slow

ASSETS = {"script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "link": "href"}
"""Tag -> the attribute that makes a browser load a file when it opens the page."""


class Page(HTMLParser):
    """Of one page: what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.assets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.anchors |= {of[name] for name in ("id", "name") if name in of}
        if of.get(ASSETS.get(tag, "")):
            self.assets.append(of[ASSETS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a folder of its own, from the project's pages, docstrings and settings."""
    pytest.importorskip("zensical", reason="`make docs` and `make test-all` install it")
    folder = tmp_path_factory.mktemp("project")
    for name in ("docs", "platform"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".zensical.toml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", ".zensical.toml"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0 and "griffe" not in built.stderr, built.stdout + built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_no_page_and_no_style_sheet_loads_anything_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loaded = [(path.name, asset) for path, page in pages.items() for asset in page.assets]
    for sheet in site.rglob("*.css"):
        loaded += [
            (sheet.name, url) for url in re.findall(r"(?:url\(|@import )[\"']?([^\"')\s]+)", sheet.read_text("utf-8"))
        ]
    assert len(loaded) > len(pages)
    assert not [(name, asset) for name, asset in loaded if urlsplit(asset).netloc]


def test_the_reference_has_every_public_name(pages: dict[Path, Page], site: Path) -> None:
    reference = pages[site / "reference" / "python.html"]
    assert {f"midmask.{name}" for name in midmask.__all__} <= reference.anchors
