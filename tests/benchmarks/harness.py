"""What every benchmark does: it takes two things in turn, in one process, and prints how many times one fits into the
other, beside the goal that docs/results/benchmarks.md names.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

T = TypeVar("T")
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Bench:
    """name: of the benchmark. rounds: after one to warm up, of which the median counts. quick: small sizes, to see that
    it runs. cpu_time: processor time of one thread, where other programs keep the machine busy.
    """

    name: str
    rounds: int
    threads: int
    cpu_time: bool
    quick: bool

    @property
    def clock(self) -> Callable[[], float]:
        return time.process_time if self.cpu_time else time.perf_counter

    def size(self, whole: T, quick: T) -> T:
        return quick if self.quick else whole

    def compare(
        self, what: str, ours: Callable[[], object], theirs: Callable[[], object], *, goal: float | None, rival: str
    ) -> None:
        """goal: how many times as fast as the rival."""
        seconds = interleaved({"ours": ours, "theirs": theirs}, self.rounds, self.clock)
        self.ratio(what, seconds["ours"] * 1e3, seconds["theirs"] * 1e3, "ms", goal=goal, rival=rival)

    def ratio(self, what: str, ours: float, theirs: float, unit: str, *, goal: float | None, rival: str) -> None:
        """goal: of the rival's over ours."""
        wanted = "" if goal is None else f", goal {goal:g}"
        self.say(f"{what}: {theirs / ours:.2f}{wanted} ({ours:,.1f} {unit}; {rival} {theirs:,.1f} {unit})")

    def say(self, line: str) -> None:
        print(f"{self.name}: {line}", flush=True)


def interleaved(
    works: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each, taken in turn; one round of warming up comes first."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            start = clock()
            work()
            seconds[name].append(clock() - start)
    return {name: median(values[1:]) for name, values in seconds.items()}


def in_a_process(call: str, *arguments: object) -> int:
    """The number that a function of these modules, MODULE.NAME, gives in a process of its own."""
    module, _, name = call.rpartition(".")
    words = ", ".join(map(repr, arguments))
    program = f"from tests.benchmarks.{module} import {name}; print({name}({words}))"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1])


def extra_memory(warm_up: Callable[[], object], work: Callable[[], object]) -> int:
    """Bytes by which `work` raises the highest resident memory of this process (Linux)."""

    def resident(mark: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{mark}:")) * 1024

    warm_up()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before
