"""Ends this process when its own local Ray has died: calls into a Ray without a raylet wait for ever.

The kernel may end a raylet for want of memory. Then a driver that waits for a task or a training hears nothing.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import ray

from midmask.command import same_command

NEEDED = ("raylet", "gcs_server")
"""Names of the processes that a Ray cannot do without."""

WORKERS_END_S = 1.0
"""Workers notice within this time that their raylet is gone; one that starts would make the folder again."""


def end_with_local_ray(folder: Path, clean_up: Callable[[], None]) -> None:
    """Watches the processes that this process's own Ray cannot do without, on threads. If one of them ends before
    `ray.shutdown`, all others are ended, and this process with exit code 1 and one line on stderr.

    Args:
        folder: that Ray was started in; each of its processes has it in its command line.
        clean_up: called before, to remove the folder.
    """
    processes, alone = [child for child in psutil.Process().children() if _runs_in(folder, child)], threading.Lock()
    for process in processes:
        if process.name() in NEEDED:
            watch = threading.Thread(
                target=_wait, args=(process, processes, clean_up, alone), name=f"midmask-{process.name()}", daemon=True
            )
            watch.start()


def _runs_in(folder: Path, process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended
        return any(str(folder) in argument for argument in process.cmdline())
    return False


def _wait(
    process: psutil.Process, processes: Sequence[psutil.Process], clean_up: Callable[[], None], alone: threading.Lock
) -> None:
    name, code = process.name(), process.wait()
    if not ray.is_initialized():  # ended by ray.shutdown
        return
    alone.acquire()  # for good: the others end because of this one
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    try:
        for other in processes:
            with suppress(psutil.NoSuchProcess):
                other.kill()
        time.sleep(WORKERS_END_S)
        clean_up()
    finally:
        line = f"error: the local Ray of this job has ended ({name}: {cause}). What was finished is kept; go on with: "
        print(line + same_command(), file=sys.stderr, flush=True)
        os._exit(1)
