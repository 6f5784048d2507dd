"""A real MLflow server on loopback over a SQLite store, for tests that take it away or look at its pages."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import answers, wait_until


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
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=env, cwd=self.folder, start_new_session=True
            )

    def wait(self) -> None:
        wait_until(partial(answers, f"{self.uri}/health"), self.process, self.folder / "server.log")

    def stop(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
