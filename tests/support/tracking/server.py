"""A real MLflow server on loopback over a SQLite store, for tests that take it away, and a proxy that lets nobody
without the right user and password through to it.
"""

import base64
import http.client
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
