"""A cluster of its own for the length of a block, by the script of `make demo`."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DEMO = [sys.executable, str(Path(__file__).resolve().parents[3] / "deploy" / "demo.py")]
WAITS = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"


@contextlib.contextmanager
def head(**resources: int) -> Iterator[dict[str, str]]:
    """Yields the environment of commands that should find the cluster.

    Args:
        resources: of its only node, such as CPU=1; others are as Ray counts them.
    """
    override = json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES", "{}"))
    environment = {**os.environ, "RAY_OVERRIDE_RESOURCES": json.dumps({**override, **resources})}
    command, pipe = [*DEMO, sys.executable, "-c", WAITS], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait()
