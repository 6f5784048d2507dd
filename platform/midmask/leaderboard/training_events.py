"""What happened in a training beside its steps: it was resumed, a loss was no number, its encoder collapsed."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from midmask.leaderboard.training import HEALTH, SECONDS, Curves
from midmask.progress import clock
from midmask.tracking.histories import History
from midmask.training.collapse import find_collapses

PAUSE_S = 120.0
"""Seconds by which the time between two points must exceed that of their steps, for the training to count as resumed
between them: a checkpoint or a look at the encoder's health takes less."""


@dataclass(frozen=True)
class TrainingEvent:
    step: int
    kind: Literal["resumed", "warning"]
    text: str


def events(curves: Curves) -> list[TrainingEvent]:
    """The events of a training, by step."""
    found = [*_resumed(curves.lines.get("loss", []), curves.lines.get(SECONDS, [])), *_not_finite(curves)]
    return sorted([*found, *_collapsed(curves)], key=lambda event: event.step)


def _resumed(loss: History, seconds: History) -> list[TrainingEvent]:
    each = {point.step: point.value for point in seconds}
    found = []
    for before, after in pairwise(loss):
        expected = (after.step - before.step) * each.get(after.step, math.inf)
        pause = after.time - before.time - expected
        if pause > max(PAUSE_S, expected):
            found.append(TrainingEvent(before.step, "resumed", f"went on after a pause of {clock(pause)}"))
    return found


def _not_finite(curves: Curves) -> list[TrainingEvent]:
    """The first step of each curve at which its value is no number."""
    found = []
    for name, history in curves.lines.items():
        step = next((point.step for point in history if not math.isfinite(point.value)), None)
        if step is not None:
            found.append(TrainingEvent(step, "warning", f"{name} is not a finite number"))
    return found


def _collapsed(curves: Curves) -> list[TrainingEvent]:
    """The first step of each kind of collapse, as the training itself warns of it."""
    steps = int(float(curves.run.params.get(f"{curves.phase}.steps") or 0))
    looks: dict[int, dict[str, float]] = {}
    for name, history in curves.lines.items():
        if name.startswith(HEALTH):
            for point in history:
                looks.setdefault(point.step, {})[name.removeprefix(HEALTH)] = point.value
    found: dict[str, TrainingEvent] = {}
    for step in sorted(looks):
        for kind, meaning in find_collapses(step, steps, looks[step]).items():
            found.setdefault(kind, TrainingEvent(step, "warning", f"collapse of the {kind}: {meaning}"))
    return list(found.values())
