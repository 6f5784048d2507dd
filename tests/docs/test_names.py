"""Prose names what exists: files, modules, names in code; and what is shipped names nothing that is not shipped."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.docs.markdown import ROOT, pages
from tests.support.docs.names import ADDRESS, PATH, PYTHON_FILE, TICKED, exists, is_address, is_file, is_there, shipped

MADE_BY_THE_READER = re.compile(r"one_word|\bNAME\b|\bFILE\b")
"""The toy of the guide to objectives, and placeholders."""
ABSENT_ON_PURPOSE = {"platform/__init__.py"}
"""Decision 1 says why it must not exist."""
OLD = re.compile(r"git checkout [0-9a-f]{8}\n(?:.+\n)*")
"""Commands that are typed at another commit."""
HISTORY = ROOT / "CHANGELOG.md"
"""It may name what has gone."""

Find = Callable[[str], list[str]]


def lacking(paths: list[Path], find: Find, is_right: Callable[[str, Path], bool]) -> list[str]:
    """PATH: NAME for each name that a file gives and that is not right there."""
    wrong = []
    for path in paths:
        for name in dict.fromkeys(find(OLD.sub("", path.read_text("utf-8")))):
            if not MADE_BY_THE_READER.search(name) and name not in ABSENT_ON_PURPOSE and not is_right(name, path):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    return wrong


def of_ours(text: str) -> list[str]:
    return [name for name in ADDRESS.findall(text) if not name.startswith("tests")]


def of_tests(text: str) -> list[str]:
    """Whoever installs the package has none of these."""
    modules = [name for name in ADDRESS.findall(text) if name.startswith("tests.") and exists(name)]
    return [*(name for name in PATH.findall(text) if name.startswith("tests/")), *modules]


@pytest.mark.parametrize(
    ("places", "find", "is_right"),
    [
        ("pages and code", PATH.findall, is_file),
        ("pages and code", PYTHON_FILE.findall, is_file),
        ("pages", ADDRESS.findall, is_address),
        ("code", of_ours, is_address),
        ("pages and code", TICKED.findall, is_there),
        ("code", of_tests, lambda name, path: False),
    ],
    ids=["paths", "files", "modules-in-pages", "modules-in-code", "backticks", "tests-in-code"],
)
def test_what_is_named_exists(places: str, find: Find, is_right: Callable[[str, Path], bool]) -> None:
    paths = [page for page in pages() if page != HISTORY] * ("pages" in places) + shipped() * ("code" in places)
    assert not lacking(paths, find, is_right)


HERE = ROOT / "platform" / "midmask" / "corpora" / "irds.py"
THERE = (
    *("midmask.training.loop", "training.loop", "Recipe.check", "pretrain.steps", "irds.records", "ray.nodes"),
    *("midmask.fingerprint", "IrDatasetsReader", "ValueError", "test.head", "scores.per_query", "tests.mutants"),
)
NOT_THERE = (
    *("midmask.cluster", "cluster.pool", "training.no_such", "Recipe.no_such", "pretrain.no_such", "errors.NoSuch"),
    *("midmask.no_such", "Missing", "recipes.run.Runner", "evaluate.tables", "no_such.py", "experiment.run.Gone"),
)


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert not [name for name in THERE if not is_there(name, HERE)]
    assert not [name for name in NOT_THERE if is_there(name, HERE)]
    assert of_tests("python -m tests.mutants, tests/docs/x.py, tests.csv") == ["tests/docs/x.py", "tests.mutants"]
    assert PATH.findall("git show 428f33c1:tests/speed/x.py, tests/speed/x.py") == ["tests/speed/x.py"]
