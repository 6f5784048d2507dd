"""Waiting for what other threads and processes do; ports for servers of tests that are started as processes."""

import secrets
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def wait_until(holds: Callable[[], object], process: subprocess.Popen | None = None, log: Path | None = None) -> None:
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


BELOW_THE_SYSTEMS = range(20_000, 32_000)
"""Lower than the ports that Linux gives to whoever asks for any, and above those of Ray's workers."""


def free_port() -> int:
    """A free port of the loopback that nothing else is likely to get before a server binds it: two processes of tests
    draw the same one with a chance of 1 in 12,000.
    """
    while True:
        port = secrets.choice(BELOW_THE_SYSTEMS)
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
