"""The project's own files, as git lists them: a checkout also holds what its user writes and what jobs make.

Its Markdown pages as data: links and anchors.
"""

import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _listed() -> frozenset[Path]:
    """The files that git tracks here; none where there is no git or no checkout."""
    command = ["git", "ls-files", "-z"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        return frozenset()
    return frozenset(ROOT / name for name in names if name and (ROOT / name).is_file())


def tracked_files() -> list[Path]:
    """All files of the project. Skips the test where git does not list them."""
    return sorted(_listed()) or pytest.skip("no git checkout here")


def is_foreign(path: Path) -> bool:
    """Whether a file lies in the checkout and is not the project's; False where git lists nothing."""
    return bool(_listed()) and path.is_relative_to(ROOT) and path not in _listed()


DOCS = ROOT / "docs"
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


def pages() -> list[Path]:
    """README, CONTRIBUTING, CHANGELOG, and everything under docs/."""
    return [page for page in (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))) if not is_foreign(page)]


def without_code(text: str) -> str:
    """A page without its fenced blocks and its code in lines."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def relative_links(text: str) -> list[str]:
    """Targets of links and images that lie in the project, as written."""
    return [link for link in LINK.findall(without_code(text)) if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """What a link may name behind `#`: the page's headings, in lower case and hyphens."""
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(FENCE.sub("", text))]
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in plain}
