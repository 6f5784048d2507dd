"""The project's own files, as git lists them: a checkout also holds what its user writes and what jobs make."""

import functools
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _listed() -> frozenset[Path]:
    """The files that git tracks here; none where there is no git or no checkout."""
    command = ["git", "ls-files", "-z"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        return frozenset()
    return frozenset(ROOT / name for name in names if name and (ROOT / name).is_file())


def tracked_files() -> list[Path]:
    """All files of the project. Skips the test where git does not list them."""
    return sorted(_listed()) or pytest.skip("no git checkout here")


def is_foreign(path: Path) -> bool:
    """Whether a file lies in the checkout and is not the project's; False where git lists nothing."""
    return bool(_listed()) and path.is_relative_to(ROOT) and path not in _listed()
