"""Waiting for what other threads and processes do."""

import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(
    holds: Callable[[], object], process: subprocess.Popen[Any] | None = None, log: Path | None = None
) -> None:
    """Returns as soon as `holds()` is true. It has no limit of its own: pytest's limit for a test ends it.

    Args:
        process: fails if it ends before. log: the file that it writes to, else its pipes are shown.
    """
    while not holds():
        if process is not None and process.poll() is not None:
            raise AssertionError(log.read_text()[-2000:] if log else process.communicate())
        time.sleep(0.02)


def answers(address: str) -> bool:
    """Whether a server answers a request for this address without an error."""
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except OSError:
        return False
    return True
