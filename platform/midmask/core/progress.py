"""Progress that a person can read in a job's log: one line now and then, with rate and time left."""

import time
from collections.abc import Callable
from typing import Literal

EVERY = 10.0
"""Seconds between two lines of one source."""


def clock(seconds: float) -> str:
    """`1h02m`, `3m07s`, `12s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def gib(size: float) -> str:
    """Bytes as people read them: 12 MiB, 3.4 GiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:,.1f} MiB"


def size(number: float) -> str:
    """Bytes as people read them: 512 B, 1.5 kB, 63 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 10 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


class StepProgress:
    """Lines for one running step; silent in between."""

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._name = name
        self._show = show
        self._first: tuple[float, int] | None = None
        self._shown = 0.0

    def update(self, at: int, of: int, loss: float | None) -> None:
        """`at` of `of` optimiser steps are done."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, at)
        began, start = self._first
        if now - self._shown < EVERY and at < of:
            return
        self._shown = now
        rate = (at - start) / (now - began) if now > began else 0.0
        left = f" · {rate:.1f} steps/s · {clock((of - at) / rate)} left" if rate > 0 else ""
        value = f" · loss {loss:.4f}" if loss is not None else ""
        self._show(f"{self._name}: step {at} of {of}{left}{value}")


class SweepProgress:
    """Lines for a whole sweep: which trial, how far it is, the best so far.

    Args:
        total: trials of the sweep. done: of these, the trials of earlier processes. show: gets each line.
    """

    def __init__(self, total: int, done: int, show: Callable[[str], None]) -> None:
        self._total = total
        self._done = done
        self._show = show
        self._best: tuple[float, str] | None = None
        self._numbers: dict[str, int] = {}
        self._steps: dict[tuple[str, str], StepProgress] = {}

    def started(self, source: str, name: str) -> None:
        if source not in self._numbers:
            self._numbers[source] = self._done + len(self._numbers) + 1
        self._show(f"{self._prefix(source)}: {name}")

    def step(self, source: str, step: str, at: int, of: int, loss: float | None) -> None:
        key = (source, step)
        if key not in self._steps:
            self._steps[key] = StepProgress(f"{self._prefix(source)} {step}", self._show_with_tail)
        self._steps[key].update(at, of, loss)

    def measured(self, source: str, text: str) -> None:
        self._show(f"{self._prefix(source)} {text}")

    def ended(self, value: float, name: str, *, mode: Literal["max", "min"]) -> None:
        """A trial is over, with its final value of what is to be as large, or as small, as can be."""
        sign = 1 if mode == "max" else -1
        if self._best is None or sign * value > sign * self._best[0]:
            self._best = (value, name)
        self._show_with_tail(f"{name}: over")

    def _show_with_tail(self, line: str) -> None:
        self._show(line + (f" · best {self.best}" if self._best else ""))

    @property
    def best(self) -> str:
        """`0.4814 (encoder mask ratio 0.15)`; "" before a trial is over."""
        return f"{self._best[0]:.4f} ({self._best[1]})" if self._best else ""

    def _prefix(self, source: str) -> str:
        return f"trial {self._numbers[source]} of {self._total}"
