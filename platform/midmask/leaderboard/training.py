"""Training runs as curves (losses, throughput, waiting for data), and the warnings that they are reason for.

Warnings: a loss was no number, the encoder collapsed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from midmask.tracking.reading import TrackedRow, read_histories
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
    lines: Mapping[str, pd.Series]  # metric -> values by step

    @cached_property
    def spent(self) -> pd.DataFrame:
        """`tokens` and `hours` of training up to each step; without a column that was not logged.

        Throughput, and the seconds of a step, are means over the steps since the point before.
        """
        seconds = self.lines.get(SECONDS, pd.Series(dtype=float))
        took = seconds * np.diff(seconds.index, prepend=0)
        spent = pd.DataFrame({"hours": took.cumsum() / 3600})
        if THROUGHPUT in self.lines:
            spent["tokens"] = (took * self.lines[THROUGHPUT].reindex(took.index, fill_value=0.0)).cumsum()
        return spent


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
    histories = read_histories(uri, run.run_id, keys)
    lines = {
        keys[key]: pd.Series({point.step: point.value for point in history}, dtype=float)
        for key, history in histories.items()
    }
    return Curves(run, phase, lines)


def _health(run: TrackedRow, phase: str) -> list[str]:
    start = f"{phase}/{HEALTH}"
    return [key.removeprefix(f"{phase}/") for key in run.metrics if key.startswith(start)]


def smooth(line: pd.Series, points: int) -> pd.Series:
    """Each value replaced by the mean of the `points` values around it (an odd number); fewer at the ends."""
    return line.rolling(points, center=True, min_periods=1).mean()


def mean_line(lines: Sequence[pd.Series]) -> pd.Series:
    """The mean of several lines at the steps that all of them have."""
    return pd.concat(lines, axis=1, join="inner").mean(axis=1)


def warnings_of(curves: Curves) -> list[tuple[int, str]]:
    """(step, text): the first step of each curve at which its value is no number, and of each kind of collapse, as the
    training itself warns of it.
    """
    warnings = [
        (int(line.index[~np.isfinite(line)][0]), f"{name} is not a finite number")
        for name, line in curves.lines.items()
        if not np.isfinite(line).all()
    ]
    steps = int(float(curves.run.params.get(f"{curves.phase}.steps") or 0))
    health = {name.removeprefix(HEALTH): line for name, line in curves.lines.items() if name.startswith(HEALTH)}
    collapses: dict[str, tuple[int, str]] = {}
    for step in sorted({step for line in health.values() for step in line.index}):
        values = {name: float(line[step]) for name, line in health.items() if step in line.index}
        for kind, meaning in find_collapses(step, steps, values).items():
            collapses.setdefault(kind, (step, f"collapse of the {kind}: {meaning}"))
    return sorted([*warnings, *collapses.values()])
