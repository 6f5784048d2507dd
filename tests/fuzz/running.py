"""Cases run each in a process of its own, with limits, and how each of them ended; and what tests say of a refusal."""

import json
import os
import random
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from midmask.errors import LONGEST, UserError

ROOM = 512 << 20
"""Bytes of address space that a case may add to its process."""

HANGS = 60.0
"""Seconds of processor time after which a case is ended as one that has no end."""

Outcome = Literal["succeeded", "quarantined", "refused"]
Case = Callable[[random.Random, Path], Outcome]
"""Reads something damaged in an empty folder; UserError: it is refused; anything else: a fault."""


@dataclass(frozen=True)
class Result:
    """How a case ended. fault: empty, or what is wrong with how it ended."""

    target: str
    number: int
    outcome: str
    fault: str


def run(
    targets: dict[str, Case],
    cases: Sequence[tuple[str, int]],
    seed: int,
    processes: int = 1,
    ended_after: float = HANGS,
) -> Iterator[Result]:
    """The results of the cases (target, number), as they come. A process that dies is a fault of its case."""
    running: dict[int, tuple[str, int, int]] = {}

    def ended() -> Result:
        pid, status = os.wait()
        name, number, pipe = running.pop(pid)
        with os.fdopen(pipe) as said:
            text = said.read()
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
        return Result(**json.loads(text)) if text else Result(name, number, "died", f"the process died: {how}")

    for name, number in cases:
        if len(running) >= processes:
            yield ended()
        reading, writing = os.pipe()
        if child := os.fork():
            os.close(writing)
            running[child] = (name, number, reading)
            continue
        try:
            _limit(ended_after)
            result = run_case(name, targets[name], number, seed)
            os.write(writing, json.dumps(asdict(result)).encode())
        finally:
            os._exit(0)
    while running:
        yield ended()


def _limit(ended_after: float) -> None:
    most = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, ended_after)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def run_case(name: str, case: Case, number: int, seed: int) -> Result:
    """One case, in this process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    outcome, fault = "failed", ""
    try:
        outcome = case(random.Random(f"{seed} {name} {number}"), folder)
    except UserError as error:
        line = str(error)
        prints = line.encode(errors="replace").decode() == line
        good = line.strip() and len(line) <= 5_000 and prints
        outcome, fault = "refused", "" if good else f"a message that nobody can read: {line[:300]!r}"
    except BaseException as error:
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if "midmask" in frame.filename]
        where = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "outside"
        fault = f"{type(error).__name__} in {where}: {str(error)[:300]!r}"
    shutil.rmtree(folder, ignore_errors=True)
    return Result(name, number, outcome, fault)


def refused(read: Any, *said: str) -> str:
    """The one line that a call ends in."""
    with pytest.raises(UserError) as error:
        result = read()
        if hasattr(result, "__next__"):
            list(result)
    line = str(error.value)
    assert all(part in line for part in said), line
    assert len(line) <= LONGEST + 100 and line.encode()
    return line
