"""Prose names what exists: files, modules, names in code; and what is shipped names nothing that is not shipped.

Between backticks stands code: a name of ours with as many parents as tell it apart, or a library's name behind its own.
A path behind `COMMIT:` is not looked up.
"""

import ast
import builtins
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.tracked import ROOT, pages

SHIPPED = ("platform", "jobs", "dashboards", "search_spaces")
IMPORTED_FROM = (ROOT / "platform", ROOT)
FIELDS = ROOT / "platform" / "midmask" / "recipes" / "fields.txt"

ADDRESS = re.compile(r"(?<![\w./-])(?:midmask|midmask_papers|tests)(?:\.[A-Za-z]\w*)+")
PATH = re.compile(r"(?<![\w./:-])(?:platform|jobs|tests|dashboards|search_spaces|midmask|midmask_papers)/[\w./-]*\w")
PYTHON_FILE = re.compile(r"(?<![\w./:-])(?:\w+/)+\w+\.py\b")
TICKED = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`(?!`)")
TYPE = re.compile(r"[A-Z]+[a-z]\w*")
FILE_OR_SLICE = re.compile(
    r".+\.(jsonl?|parquet|[ct]sv|txt|md|html|toml|yaml|cff|db|gz|safetensors)|(train|dev|test)\.\w+"
)

MADE_BY_THE_READER = re.compile(r"one_word|\bNAME\b|\bFILE\b")
"""The toy of the guide to objectives, and placeholders."""
ABSENT_ON_PURPOSE = {"platform/__init__.py"}
"""Decision 1 says why it must not exist."""
OLD = re.compile(r"git checkout [0-9a-f]{8}\n(?:.+\n)*|^## What went\n(?:.*\n)*", re.MULTILINE)
"""Commands that are typed at another commit; what was removed."""
HISTORY = ROOT / "CHANGELOG.md"
"""It may name what has gone."""

Find = Callable[[str], list[str]]


class Code(NamedTuple):
    """Identifiers in a Python file: defined there; all; libraries and names from them; literals, such as tags."""

    defined: set[str]
    used: set[str]
    libraries: set[str]
    strings: set[str]


@cache
def code_of(path: Path) -> Code:
    code = Code(set(), set(), set(), set())
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                code.defined.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                code.defined.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                home = node.module if isinstance(node, ast.ImportFrom) else aliases[0].name
                imported = {(alias.asname or alias.name).split(".")[0] for alias in aliases}
                code.defined.update(imported)
                if find_module(top := str(home).split(".")[0]) is None:
                    code.libraries.update(imported, [top])
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                code.used.add(name)
            case ast.Constant(value=str() | bytes() as text):
                code.strings.add(text if isinstance(text, str) else text.decode("latin1"))
    code.used.update(code.defined)
    return code


@cache
def shipped() -> list[Path]:
    """Code, and the spaces and tables beside it: what they say, users read."""
    paths = [path for folder in SHIPPED for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in paths if path.suffix in {".py", ".yaml", ".toml"})


@cache
def code() -> dict[Path, Code]:
    return {path: code_of(path) for path in shipped() if path.suffix == ".py"}


@cache
def every(kind: str) -> frozenset[str]:
    """All shipped identifiers of one kind."""
    return frozenset().union(*(getattr(each, kind) for each in code().values()))


@cache
def find_module(dotted: str) -> Path | None:
    """The file of a module or a package, or the folder of a package that has no file."""
    for root in IMPORTED_FROM:
        home = root.joinpath(*dotted.split("."))
        for path in (home / "__init__.py", home.with_suffix(".py"), home):
            if path.exists():
                return path
    return None


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, a package, a name in one, or a member of a class in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        if (path := find_module(".".join(parts[:length]))) is not None:
            rest = parts[length:]
            names = code_of(path).defined if path.is_file() else set[str]()
            return names.issuperset(rest) or (rest[0] in names and is_member(rest))
    return False


def is_member(parts: list[str]) -> bool:
    """Whether the first part is a class of ours, or a variable called as one, and its file defines the others."""
    head = parts[0].replace("_", "").lower()
    homes = [each for each in code().values() if each.defined.issuperset(parts[1:])]
    return any(head == name.lower() for home in homes for name in home.defined if TYPE.fullmatch(name))


@cache
def fields() -> frozenset[str]:
    """Paths of a recipe's fields, and every stretch of these paths."""
    paths = [line.split(".") for line in FIELDS.read_text("utf-8").replace("*", "N").split()]
    return frozenset(".".join(path[i:j]) for path in paths for j in range(len(path) + 1) for i in range(j))


def packages(path: Path) -> list[str]:
    """What may be left out before a name that a file gives: the packages that it lies in, and midmask."""
    root = next(root for root in IMPORTED_FROM if path.is_relative_to(root))
    inner = [parent.relative_to(root).parts for parent in path.parents if parent.is_relative_to(root)]
    return ["".join(f"{part}." for part in parts) for parts in inner] + ["midmask."]


def is_there(name: str, path: Path) -> bool:
    """Whether a name between backticks in a file names something. With dots: a module or a name in one, seen from the
    packages around the file; a library's name; a member of a class; fields of a recipe; a tag or a key; a file; a
    slice of a split. Without: of names in code, types are looked up.
    """
    head, *rest = name.split(".")
    if not rest:
        homes = (every("used"), every("strings"), dir(builtins))
        return path not in code() or not TYPE.fullmatch(name) or any(name in home for home in homes)
    if name.endswith(".py"):
        return any(each.name == name for each in code())
    return bool(
        any(exists(parent + name) for parent in packages(path))
        or any(name in home for home in (fields(), every("strings")))
        or head in every("libraries")
        or is_member([head, *rest])
        or FILE_OR_SLICE.fullmatch(name)
    )


def is_address(name: str, path: Path) -> bool:
    """Whether a name that begins with one of our packages is there, as a module's or as a tag."""
    return exists(name) or name in every("strings")


def is_file(name: str, path: Path) -> bool:
    """Whether a path exists, from the places that files write it against."""
    return any((home / name).exists() for home in (*IMPORTED_FROM, ROOT / "platform" / "midmask", *path.parents))


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


HERE = ROOT / "platform" / "midmask" / "corpora" / "ir_datasets.py"
THERE = (
    *("midmask.training.loop", "training.loop", "Recipe.check", "pretrain.steps", "ir_datasets.records", "ray.nodes"),
    *("midmask.fingerprint", "IrPiece", "ValueError", "test.head", "scores.per_query", "tests.mutants"),
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
