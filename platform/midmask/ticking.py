"""Work that a thread does again and again beside other work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ticking(do: Callable[[], None], every: float, name: str, patience: float | None = None) -> Iterator[None]:
    """Calls `do` while the block runs, each time so many seconds after the last call has ended.

    Args:
        every: seconds. name: of the thread. patience: seconds that the end of the block waits for a call that is not
            over; none: until it is.
    """
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(every):
            do()

    thread = threading.Thread(target=tick, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience)
