"""Ends this process when its own local Ray has died: calls into a Ray without a raylet wait for ever.

The kernel may end a raylet for want of memory. Then a driver that waits for a task or a training hears nothing.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray._private import ray_constants

from midmask.command import same_command

NEEDED = (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)

WORKERS_END_S = 1.0
"""Workers notice within this time that their raylet is gone; one that starts would make the folder again."""


def end_with_local_ray(clean_up: Callable[[], None]) -> None:
    """Watches the processes that this process's own Ray cannot do without, on threads. If one of them ends before
    `ray.shutdown`, all others are ended, and this process with exit code 1 and one line on stderr.

    Args:
        clean_up: called before, to remove the folder of the local Ray.
    """
    node, alone = ray._private.worker._global_node, threading.Lock()
    for name in NEEDED:
        for info in node.all_processes[name]:
            watch = threading.Thread(
                target=_wait, args=(name, info.process, node, clean_up, alone), name=f"midmask-{name}", daemon=True
            )
            watch.start()


def _wait(
    name: str, process: "subprocess.Popen[bytes]", node: Any, clean_up: Callable[[], None], alone: threading.Lock
) -> None:
    code = process.wait()
    if not ray.is_initialized():  # ended by ray.shutdown
        return
    alone.acquire()  # for good: the others end because of this one
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    try:
        node.kill_all_processes(check_alive=False)
        time.sleep(WORKERS_END_S)
        clean_up()
    finally:
        line = f"error: the local Ray of this job has ended ({name}: {cause}). What was finished is kept; go on with: "
        print(line + same_command(), file=sys.stderr, flush=True)
        os._exit(1)
