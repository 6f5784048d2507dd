"""Work beside other work: while the block runs, not after it."""

import threading

import pytest

from midmask.ticking import ticking


def test_it_is_done_again_and_again_and_never_after_the_block() -> None:
    enough, calls = threading.Event(), []

    def do() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) == 5:
            enough.set()

    with ticking(do, 0.001, "beside"):
        enough.wait()
    count = len(calls)
    assert set(calls) == {"beside"} and count >= 5
    assert "beside" not in {thread.name for thread in threading.enumerate()} and len(calls) == count


def test_the_end_waits_for_a_call_that_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is over only after the end of the block has begun to wait for its thread."""
    begun, waited_for, over, join = threading.Event(), threading.Event(), [], threading.Thread.join

    def do() -> None:
        begun.set()
        waited_for.wait()
        over.append(True)

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        waited_for.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    with ticking(do, 0.001, "beside"):
        begun.wait()
    assert over


def test_patience_is_all_that_the_end_waits() -> None:
    begun, free = threading.Event(), threading.Event()

    def do() -> None:
        begun.set()
        free.wait()

    with ticking(do, 0.001, "beside", patience=0.01):
        begun.wait()
    assert "beside" in {thread.name for thread in threading.enumerate()}, "it goes on without the block"
    free.set()


def test_an_error_of_the_block_is_its_own() -> None:
    with pytest.raises(KeyError, match="own"), ticking(lambda: None, 0.001, "beside"):
        raise KeyError("own")
