"""What of the machine a process may use: its affinity and its control groups count; and its work beside other work."""

import os
import threading
from pathlib import Path

import pytest

from midmask.core import process
from midmask.core.process import ticking

CORES = len(os.sched_getaffinity(0))
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, CORES, MEMORY),
        ({"cpu.max": "max 100000"}, CORES, MEMORY),
        ({"cpu.max": "150000 100000"}, 1, MEMORY),
        ({"cpu.max": "50000 100000"}, 1, MEMORY),
        ({"cpu.max": "6400000 100000"}, CORES, MEMORY),
        ({"memory.max": "max"}, CORES, MEMORY),
        ({"memory.max": str(2**30)}, CORES, 2**30),
        ({"memory.max": str(2**62)}, CORES, MEMORY),
    ],
)
def test_control_groups_bound_cores_and_memory(
    files: dict[str, str], cores: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(process, "CONTROL_GROUPS", tmp_path)
    assert (process.usable_cores(), process.usable_memory()) == (cores, memory)


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
    begun, free, over, join = threading.Event(), threading.Event(), [], threading.Thread.join

    def do() -> None:
        begun.set()
        free.wait()
        over.append(True)

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        free.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    with ticking(do, 0.001, "beside"):
        begun.wait()
    assert over
