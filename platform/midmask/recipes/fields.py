"""Dotted paths of the fields of all recipes, under any protocol, from a file beside this one: a misspelt `--set` is
answered without making a config, which takes seconds. `make guide` writes the file, and a test holds it to the recipes.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from midmask.errors import unknown

FILE = Path(__file__).with_name("fields.txt")


def refuse_unknown_fields(paths: Iterable[str]) -> None:
    """
    Args:
        paths: as typed for `--set`, of a field or of a whole section; stages by number, or by `*`.

    Raises:
        UserError: for a path that no recipe has, naming the nearest one.
    """
    paths_known: set[str] = set()
    for path in paths:
        paths_known = paths_known or _with_sections(FILE.read_text("utf-8").split())
        if any_stage(path) not in paths_known:
            raise unknown(
                "field",
                path,
                sorted(name.replace("*", "0") for name in paths_known),
                hint="--dry-run lists the fields of a recipe.",
            )


def any_stage(path: str) -> str:
    """A path with `*` in place of a stage's number."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path)


def _with_sections(paths: Iterable[str]) -> set[str]:
    """The paths of fields, and the paths of all sections that contain them."""
    sections = set()
    for path in paths:
        while path:
            sections.add(path)
            path = path.rpartition(".")[0]
    return sections
