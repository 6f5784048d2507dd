"""Cases run in forked processes, each with its own limits; what each of them took and how it ended."""

import json
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from midmask.errors import UserError

MEBIBYTES = 512
"""Memory that a case may take beyond what the process had before."""

HANGS = 60.0
"""Seconds of processor time after which a case is ended as one that has no end. How much a case takes up to there is
reported and decides nothing: it depends on the machine."""

ROOM = 2 << 30
"""Bytes of address space that a process may add: more than a case may use, so that excess is measured."""

Outcome = Literal["succeeded", "quarantined", "refused"]


@dataclass(frozen=True)
class Target:
    """Something that reads what others wrote.

    case: makes and reads one case in an empty folder; raises UserError where the input is refused, AssertionError where
    rows are lost, and anything else where midmask has a fault.
    """

    name: str
    case: Callable[[random.Random, Path], Outcome]


@dataclass(frozen=True)
class Result:
    """How a case ended. fault: empty, or what is wrong with how it ended."""

    target: str
    number: int
    outcome: str
    seconds: float
    mebibytes: float
    fault: str


def run(
    targets: dict[str, Target],
    cases: list[tuple[str, int]],
    seed: int,
    *,
    processes: int = 1,
    ended_after: float = HANGS,
) -> Iterator[Result]:
    """The results of the cases (target, number), as they come. A process that dies is replaced, and its case is a
    fault.

    Args:
        ended_after: seconds of processor time after which a case is ended.
    """
    shares = [cases[number::processes] for number in range(processes)]
    workers = [_Worker(targets, share, seed, ended_after) for share in shares if share]
    while workers:
        for worker in list(workers):
            if (result := worker.next()) is None:
                workers.remove(worker)
            else:
                yield result


class _Worker:
    """A process that works through a list of cases."""

    def __init__(self, targets: dict[str, Target], cases: list[tuple[str, int]], seed: int, ended_after: float) -> None:
        self._targets, self._left, self._seed, self._ended_after = targets, list(cases), seed, ended_after
        self._start()

    def _start(self) -> None:
        reading, writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(reading)
            code = 1
            try:
                _limit()
                with os.fdopen(writing, "w") as pipe:
                    for name, number in self._left:
                        result = run_case(self._targets[name], number, self._seed, self._ended_after)
                        pipe.write(json.dumps(result.__dict__) + "\n")
                        pipe.flush()
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        self._pipe = os.fdopen(reading)

    def next(self) -> Result | None:
        """The next result; none after the last."""
        if line := self._pipe.readline():
            self._left.pop(0)
            return Result(**json.loads(line))
        self._pipe.close()
        _, status = os.waitpid(self._child, 0)
        if not self._left:
            return None
        name, number = self._left.pop(0)
        ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {status >> 8}"
        self._start()
        seconds = self._ended_after if ended == "SIGPROF" else 0.0
        return Result(name, number, "died", seconds, 0.0, f"the process died: {ended}")


def _limit() -> None:
    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (address_space + ROOM, address_space + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def run_case(target: Target, number: int, seed: int, ended_after: float = HANGS) -> Result:
    """One case in this process, which SIGPROF ends after so many seconds of processor time."""
    rng = random.Random(f"{seed} {target.name} {number}")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    outcome, fault = "failed", ""
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest memory so far
    signal.setitimer(signal.ITIMER_PROF, ended_after)
    began = time.process_time()
    try:
        outcome = target.case(rng, folder)
    except UserError as error:
        outcome = "refused"
        fault = _fault_of(str(error))
    except BaseException as error:
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if "midmask" in frame.filename]
        where = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "outside"
        fault = f"{type(error).__name__} in {where}: {str(error)[:300]!r}"
    seconds = time.process_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0)
    mebibytes = max(0.0, _memory("VmHWM") - before)
    shutil.rmtree(folder, ignore_errors=True)
    if not fault and mebibytes > MEBIBYTES:
        fault = f"{mebibytes:.0f} MiB"
    return Result(target.name, number, outcome, round(seconds, 4), round(mebibytes, 1), fault)


def _fault_of(message: str) -> str:
    """What is wrong with the line that a job would print."""
    if len(message) > 5_000:
        return f"a message of {len(message):,} characters"
    try:
        message.encode()
    except UnicodeEncodeError:
        return "a message that cannot be printed"
    return "" if message.strip() else "an empty message"


def _memory(name: str) -> float:
    """MiB, as the kernel counts them for this process: VmRSS or VmHWM, the highest since it was last forgotten."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {name}")


def table(results: list[Result], seed: int) -> str:
    """The results in Markdown, a row a target."""
    head = "target | cases | succeeded | quarantined | refused | faults | worst CPU seconds | worst memory, MiB | seed"
    names = list(dict.fromkeys(result.target for result in results))
    rows = [_row(name, [one for one in results if one.target == name], seed) for name in names]
    rows.append(_row("all", results, seed))
    return "\n".join([f"| {head} |", "| --- |" + " ---: |" * 8, *rows])


def _row(name: str, own: list[Result], seed: int) -> str:
    counts = [sum(one.outcome == wanted for one in own) for wanted in ("succeeded", "quarantined", "refused")]
    worst = f"{max(one.seconds for one in own):.2f} | {max(one.mebibytes for one in own):.0f}"
    cells: list[Any] = [name, f"{len(own):,}", *(f"{count:,}" for count in counts)]
    return "| " + " | ".join([*cells, str(sum(bool(one.fault) for one in own)), worst, str(seed)]) + " |"
