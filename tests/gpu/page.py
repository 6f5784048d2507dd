"""The page docs/results/gpu.md: a section for each part of the program. A run writes the sections of its parts, and
those of other runs stay.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

TITLE = "On a GPU"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every cell is text."""
    lines = [head, [":--"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def read_sections(text: str) -> dict[str, str]:
    """Heading -> what stands below it, of a page that `write_page` wrote."""
    pieces = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def write_page(path: Path, sections: Mapping[str, str], order: Sequence[str]) -> None:
    """Writes the sections in order, beside those of `order` that the file already has."""
    known = read_sections(path.read_text("utf-8")) if path.exists() else {}
    known |= sections
    parts = [f"# {TITLE}", *(f"## {name}\n\n{known[name]}" for name in order if name in known)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n", "utf-8")
