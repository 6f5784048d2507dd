"""How workers speak to the driver: they push rows, the driver drains them; it alone writes to MLflow or a terminal."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

Row = dict[str, Any]


class _Post:
    """Holds rows until they are fetched."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Row]] = []

    def push(self, source: str, rows: list[Row]) -> None:
        self._rows += [(source, row) for row in rows]

    def drain(self) -> list[tuple[str, Row]]:
        rows, self._rows = self._rows, []
        return rows


@dataclass(frozen=True)
class Channel:
    """One end of a channel; can be sent to tasks and actors. It lives as long as the process that opened it."""

    post: Any

    @staticmethod
    def open() -> "Channel":
        return Channel(ray.remote(num_cpus=0)(_Post).remote())

    def push(self, source: str, rows: list[Row]) -> None:
        """Sends rows of plain data and waits until they have arrived."""
        ray.get(self.post.push.remote(source, rows))

    def drain(self) -> list[tuple[str, Row]]:
        """All (source, row) that have arrived since the last call, in the order of their arrival."""
        rows: list[tuple[str, Row]] = ray.get(self.post.drain.remote())
        return rows

    @contextmanager
    def forwarding(self, to: Callable[[str, Row], None], *, every_s: float = 1.0) -> Iterator[None]:
        """Calls `to` with everything that arrives while the block runs, on a thread; the last rows when it ends."""
        ended = threading.Event()

        def forward() -> None:
            while True:
                last = ended.wait(every_s)
                for source, row in self.drain():
                    to(source, row)
                if last:
                    return

        thread = threading.Thread(target=forward, name="midmask-channel", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
