"""Nothing is there for tests alone: what platform/, jobs/ and dashboards/ define is reached from what a user starts.

Reached is what a job, a page, the package's public interface or a module run with `python -m` names, and what that
names in turn. Names are compared, not what they mean: two things of one name are reached together. `make lint` runs
`python -m tests.tools.reachability`, which prints what nothing reaches, and then ends with exit code 1.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import midmask
from tests.support.tracked import is_foreign

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("platform", "jobs", "dashboards")
CALLED_BY_LIBRARIES = {
    *("get_read_tasks", "estimate_inmemory_data_size"),  # Ray Data, of a Datasource
    "on_execution_step",  # Ray Data, of a callback
    "_apply",  # torch, of a Module
    *("_create_default_callbacks", "_register_sigint_handler"),  # Ray Train, of a trainer
    *("backend_cls", "on_start"),  # Ray Train, of a trainer's torch and that's backend
    *("on_trial_complete", "on_trial_error"),  # Ray Tune, of a callback
    "_repr_html_",  # notebooks
}
VALIDATORS = {"field_validator", "model_validator"}
"""Pydantic calls what they decorate."""


@dataclass(frozen=True)
class Definition:
    """A function, class, method, constant or name that is imported under another. names: what its code names; owner:
    the class of a method."""

    place: str
    name: str
    names: frozenset[str]
    owner: str | None = None


def tree_of(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text("utf-8")).body


def definitions(path: Path, root: Path) -> Iterator[Definition]:
    for node in tree_of(path):
        yield from _defined(node, path.relative_to(root))


def _defined(node: ast.stmt, path: Path, owner: str | None = None) -> Iterator[Definition]:
    place = f"{path}:{node.lineno}"
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield Definition(place, name, names_in(node), owner)
        case ast.ClassDef(name=name):
            own = [*node.bases, *node.keywords, *node.decorator_list]
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
            inner = [one for one in inner if not VALIDATORS & names_in(*one.decorator_list)]
            yield Definition(place, name, names_in(*own, *(one for one in node.body if one not in inner)), owner)
            for each in inner:
                yield from _defined(each, path, name)
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                if alias.asname is not None:
                    yield Definition(place, alias.asname, names_in(alias))
        case ast.Assign(targets=targets):
            for name in (name for target in targets for name in _assigned(target)):
                yield Definition(place, name, names_in(node.value))
        case ast.AnnAssign(target=ast.Name(id=name)) if node.value is not None:
            yield Definition(place, name, names_in(node.value, node.annotation))
        case ast.For(body=body) | ast.If(body=body) | ast.With(body=body):
            for each in body:
                yield from _defined(each, path)


def _assigned(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Tuple):
        return [name for part in target.elts for name in _assigned(part)]
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return [target.id] if isinstance(target, ast.Name) else []


def names_in(*nodes: ast.AST) -> frozenset[str]:
    """Names, attributes, imported names, keywords and the words of short strings."""
    found: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.update(name.split("."))
            case ast.keyword(arg=str(name)):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
    return frozenset(found)


def is_started(path: Path, root: Path) -> bool:
    """Whether a user starts or imports this file itself."""
    relative = path.relative_to(root)
    is_entry = relative.parts[0] in ("jobs", "dashboards") or relative == Path("platform/midmask/__init__.py")
    return is_entry or path.name == "__main__.py" or '__name__ == "__main__"' in path.read_text("utf-8")


def python_files(root: Path) -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py") if not is_foreign(path))


def unreached(root: Path) -> list[str]:
    """Place and name of each definition that nothing reaches."""
    files = python_files(root)
    left = [one for path in files for one in definitions(path, root)]
    live = set(CALLED_BY_LIBRARIES)
    for path in filter(lambda path: is_started(path, root), files):
        live |= names_in(*(node for node in tree_of(path) if not isinstance(node, ast.FunctionDef | ast.ClassDef)))
    while reached := [one for one in left if is_reached(one, live)]:
        left = [one for one in left if not is_reached(one, live)]
        live = live.union(*(one.names for one in reached))
    return [f"{one.place}: {one.owner + '.' if one.owner else ''}{one.name}" for one in left]


def is_reached(one: Definition, live: set[str]) -> bool:
    if one.owner is not None and one.owner not in live:
        return False
    if one.owner in midmask.__all__ and not one.name.startswith("_"):
        return True  # what a public class offers
    return one.name in live or (one.name.startswith("__") and one.name.endswith("__"))


def main() -> int:
    lines = [f"{line} is reached by nothing" for line in unreached(ROOT)]
    names = {one.name for path in python_files(ROOT) for one in definitions(path, ROOT)}
    lines += [f"CALLED_BY_LIBRARIES: {name} is defined nowhere" for name in sorted(CALLED_BY_LIBRARIES - names)]
    print(*lines, sep="\n", end="\n" * bool(lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
