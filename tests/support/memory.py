"""Memory of a process and of the Ray workers below it while something runs."""

import contextlib
import threading
from typing import Self

import psutil


class Peaks:
    """While it is open: the largest USS in bytes (memory that is nobody else's) of a process, of any of the workers
    below it, and of all of them together.

    Args:
        process: None: this one.
        every_s: seconds between two looks, which cost the machine time: short for what is over soon.
    """

    def __init__(self, process: psutil.Process | None = None, every_s: float = 0.25) -> None:
        self.driver = self.worker = self.summed = 0
        self._process, self._every_s = process or psutil.Process(), every_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._every_s):
            with contextlib.suppress(psutil.NoSuchProcess):  # the process has just ended
                workers = [_worker_uss(child) for child in self._process.children(recursive=True)]
                driver = self._process.memory_full_info().uss
                self.driver = max(self.driver, driver)
                self.worker = max(self.worker, *workers, 0)
                self.summed = max(self.summed, driver + sum(workers))


def _worker_uss(process: psutil.Process) -> int:
    """0 for a process that is no worker of Ray, or has just ended."""
    try:
        return int(process.memory_full_info().uss) if process.name().startswith("ray::") else 0
    except psutil.Error:
        return 0
