"""Small file systems of their own, to be filled or made read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """The folder, made by this call, with a tmpfs in it. Skips the test where that cannot be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system, and not everywhere")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
