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


@pytest.mark.parametrize("patience", [None, 0.01])
def test_the_end_waits_for_a_call_that_is_not_over_as_long_as_its_patience(
    patience: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is over only after the end of the block has begun to wait for its thread, or after the block."""
    begun, free, over, join = threading.Event(), threading.Event(), [], threading.Thread.join

    def do() -> None:
        begun.set()
        free.wait()
        over.append(True)

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if timeout is None:
            free.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    with ticking(do, 0.001, "beside", patience):
        begun.wait()
    assert bool(over) == (patience is None)
    free.set()


def test_an_error_of_the_block_is_its_own() -> None:
    with pytest.raises(KeyError, match="own"), ticking(lambda: None, 0.001, "beside"):
        raise KeyError("own")
