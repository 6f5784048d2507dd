"""Runs tests on changed copies of the project, one process for each, forked from one that has loaded the libraries."""

import importlib
import multiprocessing.connection
import multiprocessing.process
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("platform", "tests", "search_spaces", "jobs", "dashboards", "docs", "pyproject.toml")
OPTIONS = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider")
LIMIT = 300.0
"""Seconds after which tests that still run are ended: a change that makes code run for ever is noticed."""

LIBRARIES = ("torch", "transformers.models.bert", "pyarrow.parquet", "pydantic", "hypothesis", "scipy.stats", "mlflow")
"""What tests load for seconds: loaded once, before the processes are forked."""

PASSED, NOTHING_COLLECTED = int(pytest.ExitCode.OK), int(pytest.ExitCode.NO_TESTS_COLLECTED)


class Change(Protocol):
    """A change of one file of the project."""

    def apply(self, root: Path) -> None:
        """Makes the change in the copy of the project under `root`."""


@dataclass(frozen=True)
class Task:
    """Tests to run on the project with a change, or as it is."""

    tests: Sequence[str]
    change: Change | None = None


def load_libraries() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)


def copy_of_project(folder: Path, project: Path = ROOT) -> Path:
    for name in COPIED:
        source = project / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def passes(root: Path, tests: Sequence[str]) -> bool:
    """Whether the tests pass in a copy of the project, in a Python of their own.

    Raises:
        RuntimeError: if pytest finds no test.
    """
    environment = {**os.environ, "PYTHONPATH": str(root / "platform"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    outcome = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900)
    if outcome.returncode == NOTHING_COLLECTED:
        raise RuntimeError(f"pytest {' '.join(tests)} found no test:\n{outcome.stdout[-2000:]}")
    return outcome.returncode == PASSED


def run_here(task: Task, project: Path) -> None:
    """Runs tests in a copy of `project` and ends this process with their exit code. It must have loaded neither the
    project nor its tests; that it has loaded the heavy libraries saves seconds.
    """
    os.setpgrp()  # with what tests start it can be ended as one group
    with tempfile.TemporaryDirectory(prefix="mutant") as name:
        root = copy_of_project(Path(name), project)
        if task.change is not None:
            task.change.apply(root)
        for module in [each for each in sys.modules if each.partition(".")[0] in ("tests", "midmask")]:
            del sys.modules[module]
        os.environ["PYTHONPATH"] = str(root / "platform")  # for processes that tests start
        sys.path[:0] = [str(root / "platform"), str(root)]
        os.chdir(root)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            code = pytest.main([*OPTIONS, *task.tests])
        os.chdir(ROOT)
    sys.exit(int(code))


def outcomes(tasks: Iterable[Task], *, at_once: int = 2) -> Iterator[tuple[Task, bool]]:
    """Each task with whether its tests pass, as they end. A test that fails, a module that cannot be imported, a
    process that dies or runs for longer than LIMIT: all count as not passing. All run on the project as it is now,
    whatever is edited meanwhile.

    Raises:
        RuntimeError: if pytest finds no test, so that nothing was tried.
    """
    context = multiprocessing.get_context("fork")
    running: list[tuple[Task, multiprocessing.process.BaseProcess, float]] = []

    def ended() -> Iterator[tuple[Task, bool]]:
        multiprocessing.connection.wait([process.sentinel for _, process, _ in running], timeout=1)
        for each in list(running):
            task, process, begun = each
            if process.is_alive() and time.monotonic() - begun > LIMIT:
                os.killpg(process.pid or 0, signal.SIGKILL)
            if process.is_alive():
                continue
            process.join()
            running.remove(each)
            if process.exitcode == NOTHING_COLLECTED:
                raise RuntimeError(f"pytest {' '.join(task.tests)} found no test")
            yield task, process.exitcode == PASSED

    with tempfile.TemporaryDirectory(prefix="project") as name:
        project = copy_of_project(Path(name))
        for task in tasks:
            while len(running) >= at_once:
                yield from ended()
            process = context.Process(target=run_here, args=(task, project))
            process.start()
            running.append((task, process, time.monotonic()))
        while running:
            yield from ended()


def failing(files: Iterable[str], *, at_once: int = 2) -> list[str]:
    """The test files that fail on the project as it is: they would catch any change."""
    tasks = [Task([file]) for file in sorted(set(files))]
    return [task.tests[0] for task, passes in outcomes(tasks, at_once=at_once) if not passes]
