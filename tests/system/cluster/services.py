"""The stores of a cluster, on a machine of their own: an S3 emulation (moto), and MLflow's server over PostgreSQL.

python -m tests.system.cluster.services ADDRESS        run on that machine; answers each line of its input with one line

    stop tracking | database | storage       the server hears nothing more, and its connections stay open
    continue tracking | database | storage   it goes on
    kill tracking                            the server ends at once
    start tracking                           it is there again
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.object_store import CREDENTIALS
from tests.support.postgres import PASSWORD, postgres

STORAGE, TRACKING = 9000, 5000
BUCKET = "bucket"
WITHIN_S = 120


def environment(address: str) -> dict[str, str]:
    """What a machine needs to reach the stores."""
    stores = {"AWS_ENDPOINT_URL": f"http://{address}:{STORAGE}", "AWS_REGION": "us-east-1", **CREDENTIALS}
    named = {"MIDMASK_STORAGE": f"s3://{BUCKET}/store", "MLFLOW_TRACKING_URI": f"http://{address}:{TRACKING}"}
    return {**stores, **named}


class Server:
    """A program that listens, started when it is made. answers: a URL of it."""

    def __init__(self, *command: str, answers: str) -> None:
        self._command, self._answers = command, answers
        self.start()

    def start(self) -> None:
        name = Path(self._command[0]).name
        with open(Path("/tmp") / f"{name}.log", "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + WITHIN_S
        while not _answers(self._answers):
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} does not answer: {Path(f'/tmp/{name}.log').read_text()[-2000:]}")

    def send(self, number: int) -> None:
        """A signal to it and to its own processes."""
        os.killpg(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        time.sleep(0.1)
        return False


@contextmanager
def servers(address: str) -> Iterator[dict[str, Server]]:
    """By name; they end with the block."""
    programs = Path(sys.executable).parent
    with postgres() as database:
        at = f"http://{address}:{STORAGE}"
        moto = (str(programs / "moto_server"), "--host", address, "--port", str(STORAGE))
        storage = Server(*moto, answers=f"{at}/moto-api/")
        urllib.request.urlopen(urllib.request.Request(f"{at}/{BUCKET}", method="PUT"), timeout=10).close()
        tracking = Server(
            str(programs / "mlflow"),
            *("server", "--host", address, "--port", str(TRACKING), "--workers", "1"),
            *("--allowed-hosts", f"{address}:{TRACKING}", "--artifacts-destination", "/tmp/mlflow"),
            *("--backend-store-uri", database.replace("postgres@", f"postgres:{PASSWORD}@")),
            answers=f"http://{address}:{TRACKING}/health",
        )
        found = {"storage": storage, "tracking": tracking}
        try:
            yield found
        finally:
            for one in found.values():
                one.send(signal.SIGKILL)


def main(address: str) -> None:
    signals = {"stop": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL}
    with servers(address) as found:
        print("ready", flush=True)
        for line in sys.stdin:
            verb, name = line.split()
            if name == "database":
                subprocess.run(["pkill", f"-{signals[verb].name.removeprefix('SIG')}", "-x", "postgres"], check=True)
            elif verb == "start":
                found[name].start()
            else:
                found[name].send(signals[verb])
            print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
