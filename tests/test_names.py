"""A type's name means one thing."""

import ast
from collections import defaultdict
from itertools import filterfalse
from pathlib import Path

from tests.support.tracked import is_foreign

ROOT = Path(__file__).resolve().parents[1]
OWN_IN_EVERY_METHOD = {"Config"}


def test_no_type_name_is_given_twice() -> None:
    """Classes at any depth, and names given to types at the top of a module."""
    homes = defaultdict(set)
    files = (path for folder in ("platform", "jobs", "dashboards") for path in (ROOT / folder).rglob("*.py"))
    for path in filterfalse(is_foreign, files):
        tree = ast.parse(path.read_text("utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names |= {one.id for one in targets if isinstance(one, ast.Name) and is_type_like(one.id)}
        for name in names - OWN_IN_EVERY_METHOD:
            homes[name].add(str(path.relative_to(ROOT)))
    twice = {name: sorted(found) for name, found in homes.items() if len(found) > 1}
    assert not twice


def is_type_like(name: str) -> bool:
    """Whether a name is written as a type's: a capital letter first, small ones after it."""
    return name[0].isupper() and any(letter.islower() for letter in name)
