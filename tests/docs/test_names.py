"""Prose names what exists: files, modules, names in code; and what is shipped names nothing that is not shipped."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.docs.markdown import ROOT, pages
from tests.support.docs.names import (
    ADDRESS,
    PATH,
    PYTHON_FILE,
    RAISED,
    RAISES,
    TICKED,
    code,
    exists,
    is_address,
    is_file,
    is_there,
    shipped,
)

MADE_BY_THE_READER = re.compile(r"one_word|\bNAME\b|\bFILE\b")
"""The toy of the guide to objectives, and placeholders."""
ABSENT_ON_PURPOSE = {"platform/__init__.py"}
"""Decision 1 says why it must not exist."""
HISTORY = ROOT / "CHANGELOG.md"
"""It may name what has gone."""

Find = Callable[[str], list[str]]


def lacking(paths: list[Path], find: Find, is_right: Callable[[str, Path], bool]) -> list[str]:
    """PATH: NAME for each name that a file gives and that is not right there."""
    wrong = []
    for path in paths:
        for name in dict.fromkeys(find(path.read_text("utf-8"))):
            if not MADE_BY_THE_READER.search(name) and name not in ABSENT_ON_PURPOSE and not is_right(name, path):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    return wrong


def raised(text: str) -> list[str]:
    """Names of the exceptions that docstrings promise."""
    return [name for section in RAISES.findall(text) for name in RAISED.findall(section)]


def test_files_exist() -> None:
    assert not lacking([*pages(), *shipped()], PATH.findall, is_file)
    assert not lacking([*pages(), *shipped()], PYTHON_FILE.findall, is_file)


def test_names_with_the_package_first_exist() -> None:
    assert not lacking(pages(), ADDRESS.findall, is_address)
    assert not lacking(shipped(), lambda text: [name for name in ADDRESS.findall(text) if name[0] == "m"], is_address)


def test_names_between_backticks_exist() -> None:
    assert not lacking([page for page in [*pages(), *shipped()] if page != HISTORY], TICKED.findall, is_there)


def test_exceptions_that_docstrings_promise_exist() -> None:
    assert not lacking(list(code()), raised, is_there)


def of_tests(text: str) -> Iterator[str]:
    yield from (name for name in PATH.findall(text) if name.startswith("tests/"))
    yield from (name for name in ADDRESS.findall(text) if name.startswith("tests.") and exists(name))


def test_what_is_shipped_names_no_module_of_the_tests() -> None:
    """Whoever installs the package has none of them."""
    assert not lacking(shipped(), lambda text: list(of_tests(text)), lambda name, path: False)


def test_a_name_that_is_not_there_is_noticed() -> None:
    here = ROOT / "platform" / "midmask" / "corpora" / "irds_library.py"
    for name in (
        *(
            "midmask.training.loop",
            "training.loop",
            "Recipe.check",
            "pretrain.steps",
            "irds_library.records",
            "ray.nodes",
        ),
        *("midmask.fingerprint", "MissingLibrary", "ValueError", "test.head", "scores.per_query", "tests.mutations"),
    ):
        assert is_there(name, here), name
    for name in (
        *("midmask.cluster", "cluster.pool", "training.no_such", "Recipe.no_such", "pretrain.no_such", "errors.NoSuch"),
        *("midmask.no_such", "Missing", "recipes.run.Runner", "evaluate.tables", "no_such.py", "experiment.run.Gone"),
    ):
        assert not is_there(name, here), name
    assert raised('"""A.\n\n    Raises:\n        NoSuch: if. Other: when it is so.\n    """') == ["NoSuch", "Other"]
    assert list(of_tests("python -m tests.mutations, tests/docs/x.py, tests.csv")) == [
        "tests/docs/x.py",
        "tests.mutations",
    ]
