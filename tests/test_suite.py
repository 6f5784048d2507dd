"""The tests' own process: which hosts it may reach, which settings it runs with, what it puts back."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = "192.0.2.1"
"""An address that is nobody's (RFC 5737)."""


@pytest.mark.parametrize("address", [(ELSEWHERE, 9), ("2001:db8::1", 9, 0, 0), ("a-host.invalid", 9)], ids=repr)
def test_another_host_is_refused(address: tuple) -> None:
    family = socket.AF_INET6 if len(address) > 2 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tcp, socket.socket(family, socket.SOCK_DGRAM) as udp:
        for connect in (tcp.connect, tcp.connect_ex, udp.connect, udp.connect_ex):
            with pytest.raises(RuntimeError, match=address[0]):
                connect(address)
    with pytest.raises(RuntimeError, match=address[0]):
        asyncio.run(asyncio.open_connection(*address[:2]))


FOREIGN = {
    **{"RAY_ADDRESS": f"{ELSEWHERE}:6379", "MLFLOW_TRACKING_URI": f"http://{ELSEWHERE}"},
    **{"MIDMASK_STORAGE": "s3://elsewhere", "AWS_ACCESS_KEY_ID": "a", "HTTPS_PROXY": f"http://{ELSEWHERE}"},
    **{"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "7"},
}
ASKS = """
import os, sys
assert not {"torch", "numpy", "faiss"} & sys.modules.keys(), "threads are counted when these are loaded"
import tests.conftest
print({name: os.environ.get(name) for name in %r}, {"torch", "numpy", "faiss"} & sys.modules.keys())
"""


def test_nothing_of_the_users_environment_reaches_a_test() -> None:
    """Nor is a library loaded that reads the number of threads before it is set."""
    command, env = [sys.executable, "-c", ASKS % list(FOREIGN)], {**os.environ, **FOREIGN}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    kept = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    assert done.stdout.strip() == f"{ {name: kept.get(name) for name in FOREIGN} } set()"
