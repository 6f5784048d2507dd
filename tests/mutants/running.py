"""Runs tests on changed copies of the project, one process for each, forked from one that has loaded the libraries."""

import importlib
import multiprocessing.connection
import multiprocessing.process
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.support.project import NOTHING_COLLECTED, OPTIONS, PASSED, ROOT, copy_of_project

LIMIT = 300.0
"""Seconds after which tests that still run are ended: a change that makes code run for ever is noticed."""

LIBRARIES = ("torch", "transformers.models.bert", "pyarrow.parquet", "pydantic", "hypothesis", "scipy.stats", "mlflow")
"""What tests load for seconds: loaded once, before the processes are forked."""

Change = Callable[[Path], None]
"""Changes the copy of the project under a folder."""

Running = tuple[int, multiprocessing.process.BaseProcess, float]


def load_libraries() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)


def outcomes(changes: Iterable[tuple[Change, Sequence[str]]], *, at_once: int) -> Iterator[tuple[int, bool]]:
    """The number of each change with whether its tests pass, as they end. A test that fails, a module that cannot be
    imported, a process that dies or runs for longer than LIMIT: all count as not passing. All run on the project as it
    is now, whatever is edited meanwhile. Raises RuntimeError if pytest finds no test.
    """
    context = multiprocessing.get_context("fork")
    running: list[Running] = []
    with tempfile.TemporaryDirectory(prefix="project") as name:
        project = copy_of_project(Path(name))
        for number, (change, tests) in enumerate(changes):
            while len(running) >= at_once:
                yield from _ended(running)
            process = context.Process(target=_run_here, args=(change, tests, project))
            process.start()
            running.append((number, process, time.monotonic()))
        while running:
            yield from _ended(running)


def _ended(running: list[Running]) -> Iterator[tuple[int, bool]]:
    multiprocessing.connection.wait([process.sentinel for _, process, _ in running], timeout=1)
    for each in list(running):
        number, process, begun = each
        if process.is_alive() and time.monotonic() - begun > LIMIT:
            os.killpg(process.pid or 0, signal.SIGKILL)
        if not process.is_alive():
            process.join()
            running.remove(each)
            if process.exitcode == NOTHING_COLLECTED:
                raise RuntimeError("pytest found no test")
            yield number, process.exitcode == PASSED


def _run_here(change: Change, tests: Sequence[str], project: Path) -> None:
    """Ends this process, which has loaded libraries but nothing of the project, with pytest's exit code."""
    os.setpgrp()  # with what tests start it can be ended as one group
    with tempfile.TemporaryDirectory(prefix="mutant") as name:
        root = copy_of_project(Path(name), project)
        change(root)
        for module in [each for each in sys.modules if each.partition(".")[0] in ("tests", "midmask")]:
            del sys.modules[module]
        os.environ["PYTHONPATH"] = str(root / "platform")  # for processes that tests start
        sys.path[:0] = [str(root / "platform"), str(root)]
        os.chdir(root)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            code = pytest.main([*OPTIONS, *tests])
        os.chdir(ROOT)
    sys.exit(int(code))
