"""The project's Markdown pages as data: links and anchors."""

import re
from pathlib import Path

from tests.support.tracked import is_foreign

ROOT = Path(__file__).resolve().parents[3]
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
