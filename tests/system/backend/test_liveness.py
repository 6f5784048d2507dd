"""A driver whose local Ray dies ends at once, with one line, instead of waiting for ever."""

import os
import subprocess
import sys
from pathlib import Path

DRIVER = """
import os, signal, sys, time
import ray
from midmask.backend.connection import connect

connect()
node = ray._private.worker._global_node
print(node.get_temp_dir_path(), flush=True)

@ray.remote
def wait(): time.sleep(600)

task = wait.remote()
ray.wait([task], timeout=1)
(raylet,) = node.all_processes["raylet"]
os.kill(raylet.process.pid, signal.SIGKILL)
time.sleep(60)
"""


def test_a_killed_raylet_ends_its_driver_with_one_line_and_nothing_is_left() -> None:
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(
        command, env={**os.environ, "RAY_ADDRESS": "local"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    (line,) = lines
    assert "local Ray" in line and "raylet: signal 9" in line and "go on with: " in line
    assert "Traceback" not in done.stderr
    folder = Path(done.stdout.splitlines()[0])
    assert folder.name.startswith("mm") or folder.parent.name.startswith("mm")
    assert not folder.exists()
