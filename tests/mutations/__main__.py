"""Mutation testing by table: each one-line change of the code must make a test fail.

    python -m tests.mutations [NAME …]      (make mutations: all of them)
    python -m tests.mutations --applies     (seconds: the old text of every entry stands where the entry says)

`tests/mutations/*.toml` lists file, old text, new text, the tests to run, and why the change is wrong. Mutations are
made in a temporary copy, one at a time; the copy must pass the same tests unmutated first, so that a test that fails
anyway catches nothing.
"""

import importlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).resolve().parent
COPIED = ("platform", "tests", "dashboards", "search_spaces", "jobs", "pyproject.toml")
OPTIONS = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider")
AT_ONCE = 2

LIBRARIES = ("torch", "transformers.models.bert", "pyarrow.parquet", "pydantic", "hypothesis")
"""What every test loads for seconds: loaded once, before the processes of the mutations are forked."""


@dataclass(frozen=True)
class Mutation:
    """One wrong change: in `file`, the text `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str
    tests: list[str]
    why: str

    def mutated(self, root: Path) -> str:
        """The text of the file with the mutation. Raises ValueError if the old text is not there exactly once, or
        nothing would change.
        """
        path = root / self.file
        text = path.read_text("utf-8") if path.is_file() else ""
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.file}: {self.old!r} stands there {text.count(self.old)} times, wanted once")
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        (root / self.file).write_text(self.mutated(root), "utf-8")


def read(names: list[str]) -> Iterator[Mutation]:
    """The mutations of the named tables, or of all."""
    for table in sorted(TABLES.glob("*.toml")):
        if not names or table.stem in names:
            yield from read_table(table)


def read_table(table: Path) -> list[Mutation]:
    return [Mutation(**entry) for entry in tomllib.loads(table.read_text("utf-8"))["mutation"]]


def misfits(mutations: Iterable[Mutation]) -> list[str]:
    """A line for every entry that does not apply to the project as it is, or names a test file that is not there."""
    found = []
    for mutation in mutations:
        try:
            mutation.mutated(ROOT)
        except ValueError as error:
            found.append(str(error))
        found += [
            f"{mutation.file}: no {test}" for test in mutation.tests if not (ROOT / test.split("::")[0]).is_file()
        ]
    return found


def copy_of_project(folder: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def passes(root: Path, tests: list[str]) -> bool:
    """Whether the tests pass in a copy of the project, in a Python of their own."""
    environment = {**os.environ, "PYTHONPATH": str(root / "platform"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    outcome = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900)
    if outcome.returncode not in (0, 1):
        raise RuntimeError(f"pytest {' '.join(tests)} ended with {outcome.returncode}:\n{outcome.stdout[-2000:]}")
    return outcome.returncode == 0


def run_here(tests: list[str], mutation: Mutation | None) -> None:
    """Runs tests in a copy of the project and ends this process with their exit code. It must have loaded neither the
    project nor its tests; that it has loaded the heavy libraries saves seconds.
    """
    with tempfile.TemporaryDirectory(prefix="mutant") as name:
        root = copy_of_project(Path(name))
        if mutation is not None:
            mutation.apply(root)
        for module in [each for each in sys.modules if each.partition(".")[0] in ("tests", "midmask")]:
            del sys.modules[module]
        os.environ["PYTHONPATH"] = str(root / "platform")  # for processes that tests start
        sys.path[:0] = [str(root / "platform"), str(root)]
        os.chdir(root)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            code = pytest.main([*OPTIONS, *tests])
        os.chdir(ROOT)
    sys.exit(int(code))


def outcomes(tasks: Iterable[tuple[list[str], Mutation | None]]) -> Iterator[bool]:
    """Whether the tests of each task pass, in order; two at a time, each in a process forked from this one.

    Raises:
        RuntimeError: if pytest ends otherwise than with passing or failing tests.
    """
    context = multiprocessing.get_context("fork")
    running: deque[tuple[list[str], multiprocessing.process.BaseProcess]] = deque()

    def oldest() -> bool:
        tests, process = running.popleft()
        process.join()
        if process.exitcode not in (0, 1):
            raise RuntimeError(f"pytest {' '.join(tests)} ended with {process.exitcode}")
        return process.exitcode == 0

    for task in tasks:
        if len(running) == AT_ONCE:
            yield oldest()
        process = context.Process(target=run_here, args=task)
        process.start()
        running.append((task[0], process))
    while running:
        yield oldest()


def main(names: list[str]) -> int:
    if names == ["--applies"]:
        lines = misfits(read([]))
        print("\n".join(lines) or "every entry applies")
        return 2 if lines else 0
    mutations = list(read(names))
    files = sorted({test for mutation in mutations for test in mutation.tests})
    os.environ["OMP_NUM_THREADS"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)
    passing = outcomes(([file], None) for file in files)
    if failing := [file for file, passes in zip(files, passing, strict=True) if not passes]:
        print(f"these fail without any mutation; mend them first: {', '.join(failing)}")
        return 2
    survivors = 0
    for mutation, survives in zip(mutations, outcomes((each.tests, each) for each in mutations), strict=True):
        print(f"{'SURVIVED' if survives else 'caught  '}  {mutation.file}: {mutation.why}", flush=True)
        survivors += survives
    print(f"{len(mutations)} mutations, {len(mutations) - survivors} caught")
    return 1 if survivors or not mutations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
