"""The documentation site, built as `make docs` builds it: no link that leads nowhere, nothing from another host."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(
    r"<(?:script|img|source|iframe|video)\b[^>]*?\bsrc=\"?([^\"\s>]+)|<link\b[^>]*?\bhref=\"?([^\"\s>]+)"
)
"""What makes a browser load a file when it opens a page."""


@pytest.mark.slow
def test_no_page_and_no_style_sheet_loads_anything_from_another_host(tmp_path: Path) -> None:
    """Built in a folder of its own, from the project's pages, docstrings and settings."""
    pytest.importorskip("zensical", reason="`make docs` and `make test-all` install it")
    for name in ("docs", "platform"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", ".zensical.toml"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0 and "griffe" not in built.stderr, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    loaded = [(path.name, one or other) for path in pages for one, other in LOADED.findall(path.read_text("utf-8"))]
    for sheet in (tmp_path / "site").rglob("*.css"):
        urls = re.findall(r"(?:url\(|@import )[\"']?([^\"')\s]+)", sheet.read_text("utf-8"))
        loaded += [(sheet.name, url) for url in urls]
    assert len(loaded) > len(pages)
    assert not [(name, asset) for name, asset in loaded if urlsplit(asset).netloc]
