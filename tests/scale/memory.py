"""Memory of this process and of the Ray workers below it while something runs."""

import threading
from typing import Self

import psutil

EVERY_S = 0.25


class Peaks:
    """While it is open: the largest USS in bytes (memory that is nobody else's) of this process and of any worker."""

    def __init__(self) -> None:
        self.driver = self.worker = 0
        self._own = psutil.Process()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_S):
            self.driver = max(self.driver, self._own.memory_full_info().uss)
            for process in self._own.children(recursive=True):
                try:
                    if process.name().startswith("ray::"):
                        self.worker = max(self.worker, process.memory_full_info().uss)
                except psutil.Error:
                    continue  # it has just ended
