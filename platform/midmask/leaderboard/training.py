"""Training runs as curves (losses, throughput, waiting for data), and what happened in them beside their steps.

Events: a training was resumed, a loss was no number, its encoder collapsed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Literal

from midmask.core.words import clock
from midmask.tracking.reading import History, MetricPoint, TrackedRow, read_histories
from midmask.training.collapse import find_collapses

PHASES = ("pretrain", "finetune", "teach", "generator")
"""Steps that train; each tells its metrics below its own name (`pretrain/loss`)."""

THROUGHPUT = "tokens_per_second"
WAIT = "data_wait_share"
NO_PART = (
    *("loss", THROUGHPUT, WAIT, "learning_rate", "epoch", "step_seconds", "padded_share"),
    *("gradient_norm", "heads_gradient_norm"),
)
"""What a training tells beside the parts of its loss, by the names in the summary of its trace."""

HEALTH = "health/"
"""What the names of the encoder's health measures begin with."""

RECORDED = "parts."
"""What the parts' last values begin with in a training's record, which is tracked when it ends."""

MOST_POINTS = 600
"""Points of a curve; a screen has no more."""

LEARNING_RATE, NORM, HEADS_NORM, SECONDS = "learning_rate", "gradient_norm", "heads_gradient_norm", "step_seconds"

PANELS = {
    "Learning rate": LEARNING_RATE,
    "Gradient norm": NORM,
    "Gradient norm of the heads": HEADS_NORM,
    "Tokens a second": THROUGHPUT,
    "Waiting for data": WAIT,
}
"""Title -> what is shown of a training beside its loss and the loss's parts."""


@dataclass(frozen=True)
class Curves:
    """The metrics of one phase of one run over its steps."""

    run: TrackedRow
    phase: str
    lines: Mapping[str, History]  # metric -> history
    tokens: Mapping[int, float] = field(default_factory=dict)  # step -> tokens up to there; empty if not logged
    hours: Mapping[int, float] = field(default_factory=dict)  # step -> hours up to there; empty if not logged

    @property
    def length(self) -> int:
        """How many points there are in the longest history."""
        return max(map(len, self.lines.values()), default=0)


def trainings(runs: Iterable[TrackedRow], phase: str) -> list[TrackedRow]:
    """Runs with a loss in this phase, running and failed ones too, in their order."""
    return [run for run in runs if f"{phase}/loss" in run.metrics and run.status != "cached"]


def parts_of(runs: Iterable[TrackedRow], phase: str) -> list[str]:
    """Names of the parts of these runs' losses, each once, by name."""
    return sorted({name for run in runs for name in _loss_names(run, phase)})


def _loss_names(run: TrackedRow, phase: str) -> set[str]:
    """Names of the loss terms: those in the training's record if it has finished, otherwise all metrics of the phase
    that have no other known meaning.
    """
    names = {name.removeprefix(f"{phase}/") for name in run.metrics if name.startswith(f"{phase}/")}
    recorded = {name.removeprefix(RECORDED) for name in names if name.startswith(RECORDED)}
    return recorded & names or {name for name in names - set(NO_PART) if "." not in name and "/" not in name}


def curves(uri: str, run: TrackedRow, phase: str, names: Sequence[str]) -> Curves:
    """Reads these metrics of a run, and those that its axes need.

    Raises:
        UserError: if the store does not answer.
    """
    metrics = dict.fromkeys([*names, THROUGHPUT, SECONDS, *(name for name in _health(run, phase))])
    keys = {f"{phase}/{name}": name for name in metrics if f"{phase}/{name}" in run.metrics}
    lines = {keys[key]: history for key, history in read_histories(uri, run.run_id, keys).items()}
    return Curves(run, phase, lines, *spent(lines.get(THROUGHPUT, []), lines.get(SECONDS, [])))


def _health(run: TrackedRow, phase: str) -> list[str]:
    start = f"{phase}/{HEALTH}"
    return [key.removeprefix(f"{phase}/") for key in run.metrics if key.startswith(start)]


def spent(throughput: History, seconds: History) -> tuple[dict[int, float], dict[int, float]]:
    """Step -> tokens, and step -> hours of training, up to there.

    Args:
        throughput: tokens a second. seconds: of a step. Both are means over the steps since the point before.
    """
    rates = {point.step: point.value for point in throughput}
    tokens: dict[int, float] = {}
    hours: dict[int, float] = {}
    before, total, clock = 0, 0.0, 0.0
    for point in seconds:
        took = point.value * (point.step - before)
        before, clock, total = point.step, clock + took, total + took * rates.get(point.step, 0.0)
        tokens[point.step], hours[point.step] = total, clock / 3600
    return tokens if rates else {}, hours


def smooth(history: History, points: int) -> History:
    """Each value replaced by the mean of the `points` values around it (an odd number); fewer at the ends."""
    half = points // 2
    values = [point.value for point in history]
    return [point._replace(value=fmean(values[max(0, at - half) : at + half + 1])) for at, point in enumerate(history)]


def mean_history(histories: Sequence[History]) -> History:
    """The mean of several histories at the steps that all of them have."""
    series = [{point.step: point for point in history} for history in histories]
    shared = set.intersection(*(set(curve) for curve in series)) if series else set()
    return [
        MetricPoint(step, fmean(curve[step].value for curve in series), fmean(curve[step].time for curve in series))
        for step in sorted(shared)
    ]


def thin(history: Sequence[MetricPoint], most: int) -> History:
    """At most `most` points of a curve (4 or more): of each of equal parts the lowest and the highest, so that no spike
    is lost, and the first and the last.
    """
    if len(history) <= most:
        return list(history)
    inner, parts = range(1, len(history) - 1), (most - 2) // 2
    positions = {0, len(history) - 1}
    for part in range(parts):
        span = inner[len(inner) * part // parts : len(inner) * (part + 1) // parts]
        positions |= {
            min(span, key=lambda at: history[at].value),
            max(span, key=lambda at: history[at].value),
        }
    return [history[at] for at in sorted(positions)]


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
    training_events = [*_resumed(curves.lines.get("loss", []), curves.lines.get(SECONDS, [])), *_not_finite(curves)]
    return sorted([*training_events, *_collapsed(curves)], key=lambda event: event.step)


def _resumed(loss: History, seconds: History) -> list[TrainingEvent]:
    each = {point.step: point.value for point in seconds}
    pauses = []
    for before, after in pairwise(loss):
        expected = (after.step - before.step) * each.get(after.step, math.inf)
        pause = after.time - before.time - expected
        if pause > max(PAUSE_S, expected):
            pauses.append(TrainingEvent(before.step, "resumed", f"went on after a pause of {clock(pause)}"))
    return pauses


def _not_finite(curves: Curves) -> list[TrainingEvent]:
    """The first step of each curve at which its value is no number."""
    warnings = []
    for name, history in curves.lines.items():
        step = next((point.step for point in history if not math.isfinite(point.value)), None)
        if step is not None:
            warnings.append(TrainingEvent(step, "warning", f"{name} is not a finite number"))
    return warnings


def _collapsed(curves: Curves) -> list[TrainingEvent]:
    """The first step of each kind of collapse, as the training itself warns of it."""
    steps = int(float(curves.run.params.get(f"{curves.phase}.steps") or 0))
    looks: dict[int, dict[str, float]] = {}
    for name, history in curves.lines.items():
        if name.startswith(HEALTH):
            for point in history:
                looks.setdefault(point.step, {})[name.removeprefix(HEALTH)] = point.value
    collapses: dict[str, TrainingEvent] = {}
    for step in sorted(looks):
        for kind, meaning in find_collapses(step, steps, looks[step]).items():
            collapses.setdefault(kind, TrainingEvent(step, "warning", f"collapse of the {kind}: {meaning}"))
    return list(collapses.values())
