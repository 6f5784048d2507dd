"""A copy of the project, to be changed and tested."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("platform", "tests", "search_spaces", "jobs", "dashboards", "docs", "pyproject.toml")
FAST = "not system and not slow and not gpu"
OPTIONS = ("-x", "-q", "-m", FAST, "-p", "no:cacheprovider")
PASSED, NOTHING_COLLECTED = int(pytest.ExitCode.OK), int(pytest.ExitCode.NO_TESTS_COLLECTED)


def copy_of_project(folder: Path, project: Path = ROOT) -> Path:
    for name in COPIED:
        source = project / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(source, folder / name)
    return folder


def run_in(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in a copy of the project and with its packages."""
    environment = {**os.environ, "PYTHONPATH": f"{root / 'platform'}:{root}"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=900)


def passes(root: Path, tests: Sequence[str]) -> bool:
    """Whether the tests pass in a copy of the project. Raises RuntimeError if pytest finds none."""
    outcome = run_in(root, "-m", "pytest", *OPTIONS, *tests)
    if outcome.returncode == NOTHING_COLLECTED:
        raise RuntimeError(f"pytest {' '.join(tests)} found no test:\n{outcome.stdout[-2000:]}")
    return outcome.returncode == PASSED
