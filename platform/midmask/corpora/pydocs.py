"""The embedded corpus: docstring bodies of installed packages, their summary lines as queries.

Sources are found without importing them, and read as text. A passage is a docstring without its first sentence; its
title is the module's dotted name (not the object's, which would give the answer away); whether titles are used is
decided downstream.
"""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from midmask.corpora.chunks import BLOCK_ROWS, END, NOT_UTF8, ORIGIN, RAW_CHARACTERS
from midmask.corpora.config import CorpusConfig
from midmask.corpora.corpus import CorpusPieces
from midmask.corpora.docstrings import docstrings, pair
from midmask.corpora.statistics import is_question
from midmask.errors import UserError

NOT_PYTHON = "malformed file"
PIECE_BYTES = 4 << 20
SCHEMA = pa.schema(
    [
        *ORIGIN,
        *((name, pa.string()) for name in ("file", "rule", "name", "module", "summary", "text")),
        ("words", pa.int32()),
        ("question", pa.bool_()),
    ]
)
TESTS = {"test", "tests", "_tests", "testing"}
VENDORED = {
    "vendor",
    "_vendor",
    "vendored",
    "_vendored",
    "extern",
    "externals",
    "external",
    "third_party",
    "_third_party",
}
VENDORED |= {"thirdparty", "thirdparty_files", "node_modules"}


@dataclass(frozen=True)
class SourcePiece:
    """Some modules of one installed package, by path below the folder that holds the package.

    They are found again where they are read, so a worker on another machine reads its own copy of the same version.
    """

    number: int
    package: str
    version: str
    modules: tuple[str, ...]
    size: int
    max_characters: int

    @property
    def file(self) -> str:
        return f"{self.package} part {self.number}"

    def read(self) -> Iterator[pa.Table]:
        """One row per docstring, with summary and body (`text`), or the rule that leaves it out.

        Raises:
            UserError: if this machine has another version of the package.
        """
        if (here := package_version(self.package)) != self.version:
            raise UserError(
                f"pydocs: {self.package} is {here} on {platform.node()} but {self.version} on the driver; install one"
            )
        folder = package_folder(self.package).parent
        rows: list[dict[str, object]] = []
        for module in self.modules:
            rows.extend(self._read_rows(folder, module))
            if len(rows) >= BLOCK_ROWS:
                yield pa.Table.from_pylist(rows, schema=SCHEMA)
                rows = []
        yield pa.Table.from_pylist([*rows, {"piece": self.number, "line": 0, "fault": END}], schema=SCHEMA)

    def _read_rows(self, folder: Path, path: str) -> Iterator[dict[str, object]]:
        if rule := rule_for(path):
            yield {"piece": self.number, "line": 0, "file": path, "rule": rule}
            return
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        source = (folder / path).read_bytes()
        try:
            found = list(docstrings(source, module))
        except (SyntaxError, ValueError, RecursionError) as error:
            fault = NOT_UTF8 if isinstance(error, UnicodeError) or "codec can't decode" in str(error) else NOT_PYTHON
            line = getattr(error, "lineno", None) or 1
            yield {"piece": self.number, "line": line, "file": path, "fault": fault, "raw": str(error)[:RAW_CHARACTERS]}
            return
        for name, line, text in found:
            row: dict[str, object] = {"piece": self.number, "line": line, "file": path}
            summary, body, rule = pair(text.encode(errors="replace").decode(), self.max_characters)
            if rule:
                yield {**row, "rule": rule}
            else:
                yield {
                    **row,
                    "name": name,
                    "module": module,
                    "summary": summary,
                    "text": body,
                    "words": len(body.split()),
                    "question": is_question(body),
                }


def rule_for(path: str) -> str | None:
    """Why a file is left out: it holds tests, or somebody else's code."""
    *folders, file = path.split("/")
    if TESTS & set(folders) or file.startswith("test_") or file.endswith("_test.py") or file == "conftest.py":
        return "test file"
    return "vendored file" if VENDORED & set(folders) else None


def package_folder(package: str) -> Path:
    """Where a package's source lies; a top-level package is found without running any of its code.

    Raises:
        UserError: if it is not installed, or is no folder of Python source.
    """
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"packages: {package!r} is not an installed package; install it or leave it out of packages")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Import name -> distributions. It reads the metadata of everything that is installed, so it is asked once."""
    return packages_distributions()


@cache
def package_version(package: str) -> str:
    """The version of the distribution that holds an importable package; a build suffix such as `+cpu` is cut."""
    names = _distributions().get(package)
    return version(names[0]).split("+")[0] if names else "unknown"


def package_versions(packages: tuple[str, ...]) -> dict[str, Any]:
    """What decides which docstrings are read: the packages in order, and this Python, whose grammar must parse them."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "packages": [f"{package}=={package_version(package)}" for package in packages if package_folder(package)],
    }


def open_pydocs(packages: tuple[str, ...], max_characters: int) -> CorpusPieces:
    """Pieces of a few MB of source, packages in the order given, modules by path."""
    pieces: list[SourcePiece] = []
    for package in packages:
        folder = package_folder(package)
        release = package_version(package)
        for modules, size in _batch_files(folder):
            pieces.append(SourcePiece(len(pieces), package, release, modules, size, max_characters))
    return CorpusPieces("pydocs", tuple(pieces), (), ())


def _batch_files(folder: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    paths, size = [], 0
    for root, folders, files in os.walk(folder):
        folders.sort()
        inside = Path(root).relative_to(folder.parent).as_posix()
        for file in sorted(files):
            if file.endswith(".py"):
                paths.append(f"{inside}/{file}")
                size += os.stat(os.path.join(root, file)).st_size
                if size >= PIECE_BYTES:
                    yield tuple(paths), size
                    paths, size = [], 0
    if paths:
        yield tuple(paths), size


@dataclass(frozen=True)
class PydocsReader:
    """Reads the installed packages; their versions, and this Python, are what decides the rows."""

    layout: str = "built in: docstrings of installed packages (corpus.packages), with their summary lines as queries"

    def open(self, config: CorpusConfig) -> CorpusPieces:
        return open_pydocs(config.packages, config.max_characters)

    def identity(self, config: CorpusConfig) -> dict[str, Any]:
        return package_versions(config.packages)


READER = PydocsReader()
