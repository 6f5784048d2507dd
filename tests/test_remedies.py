"""What messages advise can be typed: all literals of the package are read for commands, flags, fields and extras."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from midmask.commands import JOBS, TOOLS
from midmask.commands.shell import whole_parser
from midmask.identity import flatten
from midmask.queries.config import QueriesConfig
from midmask.recipes.fields import FILE, any_stage

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "midmask"

FOREIGN = set(
    "--node-ip-address --force-reinstall --no-deps --backend-store-uri --host --port --server --working-dir --quiet "
    "--disable-usage-stats --dashboard-port --dashboard-agent-listen-port --ray-client-server-port --dashboard-host "
    "--temp-dir --help --head --block --num-cpus --min-worker-port --max-worker-port".split()
)
"""Flags of ray, mlflow, streamlit and pip."""

PATH = r"(?P<path>[a-z_]+(?:\.[a-z_*{}0-9N]+)+|[a-z_]+=)"
ADVICE = re.compile(rf"\b(?:[Ss]et|[Rr]aise|[Uu]se|[Cc]hoose|[Tt]ype|[Ww]rite|[Gg]ive|[Nn]ame) {PATH}")
A_FILE = re.compile(r"\.(jsonl|json|gz|tsv|parquet|npy|py|html|md)$")
STYLES = re.compile(r"var\(--|style=\"--")
PAGES = ("recipes/fields_page.py",)
"""Modules whose literals are pages of the documentation, for a checkout."""


@cache
def flags() -> set[str]:
    """Every flag of every command."""
    (commands,) = (action.choices for action in whole_parser()._actions if isinstance(action.choices, dict))
    parsers = (whole_parser(), *commands.values())
    return {name for parser in parsers for one in parser._actions for name in one.option_strings}


@cache
def fields() -> set[str]:
    """Every path that a recipe or `choose` has, sections too; `*` for a stage."""
    made = [f"queries.{path}" for path in flatten(QueriesConfig())]
    paths = [path.split(".") for path in (*FILE.read_text("utf-8").split(), *made)]
    return {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}


@cache
def targets() -> list[str]:
    return re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)


@cache
def extras() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return found


def faults(text: str) -> Iterator[str]:
    """What a message advises and nobody can type. `{}` stands for a value that is filled in."""
    yield from (f"make {target}" for target in re.findall(r"\bmake ([a-z-]+)\b", text) if target in targets())
    if re.search(r"constraints\.txt|pip install -e", text):
        yield "pip install from a checkout"
    yield from (f"extra {name}" for name in re.findall(r"midmask\[([a-z-]+)\]", text) if name not in extras())
    for name in re.findall(r"(?:`|: |with |, )midmask ([a-z]+(?:-[a-z]+)*)(?= -|`| [A-Z{]|$)", text):
        if name not in JOBS and name not in TOOLS:
            yield f"midmask {name}"
    yield from (job for job in re.findall(r"jobs/[a-z_]+\.py", text) if not (ROOT / job).is_file())
    for flag in () if STYLES.search(text) else re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text):
        if flag not in flags() and flag not in FOREIGN:
            yield flag
    for found in ADVICE.finditer(text):
        path = found["path"].rstrip("=")
        if not is_field(path) and not A_FILE.search(path):
            yield path


def is_field(path: str) -> bool:
    named = any_stage(re.sub(r"\bN\b", "0", path)).rstrip(".")
    if "{}" in named:  # such as {place}.pool
        end = named.rpartition("{}")[2]
        return any(known.endswith(end) for known in fields())
    return named in fields()


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each literal of a module that is no docstring."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    outer = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    outer += [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    inside = {id(part) for node in outer for part in ast.walk(node) if part is not node}
    for node in nodes:
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_what_literals_advise_can_be_typed() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {fault}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if str(file.relative_to(PACKAGE)) not in PAGES
        for line, text in literals(file)
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "train.batch_size = 16: there are only 10 rows; set batch_size=10 or less",
        "is not installed: make venv",
        "type: pip install -c constraints.txt -e '.[documents]'",
        "pip install 'midmask[document]'",
        "train one with jobs/train_teachers.py",
        "make it with midmask evaluate-runs --corpus NAME",
        "name it: --corpora beir:FOLDER",
    ],
)
def test_the_reader_of_literals_sees_what_cannot(text: str) -> None:
    assert list(faults(text))
