#!/usr/bin/env python3
"""A Ray cluster for the length of one command, as of `make demo`: `python deploy/demo.py COMMAND ARGS…`.

It has ports, a folder and a token of its own, so it runs beside any other Ray, and it is ended by its process id: `ray
stop` would end the others too. The command finds it by its environment (RAY_API_SERVER_ADDRESS for `ray job submit`,
RAY_ADDRESS for a driver). The exit code is the command's.
"""

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STARTS_WITHIN_S = 120


def main(command: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))
    gcs, dashboard, agent, client = free_ports(4)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.pop("RAY_ADDRESS", None)  # `ray start` would join it
    os.environ["MIDMASK_HEAD_COMMAND"] = f"{sys.executable} {sys.argv[0]}"  # a job has the head's variables
    with tempfile.TemporaryDirectory(prefix="demo", dir="/tmp", ignore_cleanup_errors=True) as folder:
        start = [
            *("ray", "start", "--head", "--block", "--disable-usage-stats", f"--temp-dir={folder}/ray"),
            *(f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
            *(f"--ray-client-server-port={client}", "--min-worker-port=0", "--max-worker-port=0"),
        ]
        said = Path(folder, "said")
        with open(said, "wb") as log:
            head = subprocess.Popen(start, stdout=log, stderr=log, start_new_session=True)  # Ctrl-C does not reach it
        try:
            until = time.monotonic() + STARTS_WITHIN_S
            while not (answers(agent) and answers(dashboard)):  # before, `ray job submit` has 'No available agent'
                if head.poll() is not None or time.monotonic() > until:
                    sys.exit(f"error: Ray did not start:\n{said.read_text(errors='replace')[-2000:]}")
                time.sleep(0.25)
            os.environ["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{dashboard}"
            os.environ["RAY_ADDRESS"] = f"127.0.0.1:{gcs}"
            return run(command)
        finally:
            head.terminate()
            head.wait()


def free_ports(number: int) -> list[int]:
    """Below those that Linux gives to connections, one of which could take a port before Ray listens."""
    free = []
    for port in random.sample(range(20_000, 32_768), 1_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            free.append(port)
        if len(free) == number:
            break
    return free


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def run(command: list[str]) -> int:
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    try:
        code = process.wait()
    except KeyboardInterrupt:  # it has reached the command too, which ends its tracked runs
        process.wait()
        code = -signal.SIGINT
    return 130 if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
