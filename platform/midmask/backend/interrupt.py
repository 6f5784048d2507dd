"""Calls into Ray that an interrupt ends as it ends any other code: by KeyboardInterrupt."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_interruptibly(call: Callable[[], T]) -> T:
    """`call()`, on a thread that the calling one waits for.

    In the main thread, Ray Train and Ray Tune install handlers of SIGINT: Tune's returns half a sweep as if it had
    ended, Train's stays when the training has ended and makes exit code 0 of a later interrupt. In other threads they
    install none. After an interrupt the thread goes on until the process ends, which its caller is about to do.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # all of them, for the thread that waits
            future.set_exception(error)

    threading.Thread(target=work, name="midmask-ray", daemon=True).start()
    return future.result()
