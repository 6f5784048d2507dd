"""Training runs as curves: losses and their parts, throughput, the share of the time that went to waiting for data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midmask.tracking import TrackedRow
from midmask.tracking.histories import History, read_histories

PHASES = ("pretrain", "finetune", "teach", "generator")
"""Steps that train; each tells its metrics below its own name (`pretrain/loss`)."""

THROUGHPUT = "tokens_per_second"
WAIT = "data_wait_share"
NO_PART = (
    *("loss", THROUGHPUT, WAIT, "learning_rate", "epoch", "step_seconds", "padded_share"),
    *("gradient_norm", "heads_gradient_norm"),
)
"""What a training tells beside the parts of its loss, by the names of `train.trace.summary`."""

RECORDED = "parts."
"""What the parts' last values begin with in a training's record, which is tracked when it ends."""

MOST_POINTS = 600
"""Points of a curve; a screen has no more."""

PANELS = {"Tokens a second": THROUGHPUT, "Waiting for data": WAIT}
"""Title -> what is shown of a training beside its loss and the loss's parts."""


@dataclass(frozen=True)
class Curves:
    """One phase of one run: metric -> thinned history. told: how many points there were in the longest."""

    run: TrackedRow
    phase: str
    lines: Mapping[str, History]
    told: int


def trainings(runs: Iterable[TrackedRow], phase: str) -> list[TrackedRow]:
    """Runs with a loss in this phase, running and failed ones too, in their order."""
    return [run for run in runs if f"{phase}/loss" in run.metrics and run.status != "cached"]


def parts_of(runs: Iterable[TrackedRow], phase: str) -> list[str]:
    """Names of the parts of these runs' losses, each once, by name."""
    return sorted({name for run in runs for name in _loss_names(run, phase)})


def _loss_names(run: TrackedRow, phase: str) -> set[str]:
    """What the record of a training that has ended calls parts; of one that goes on, what is known as nothing else."""
    names = {name.removeprefix(f"{phase}/") for name in run.metrics if name.startswith(f"{phase}/")}
    recorded = {name.removeprefix(RECORDED) for name in names if name.startswith(RECORDED)}
    return recorded & names or {name for name in names - set(NO_PART) if "." not in name and "/" not in name}


def curves(uri: str, run: TrackedRow, phase: str, names: Sequence[str]) -> Curves:
    """What a run told of these metrics.

    Raises:
        UserError: if the store does not answer.
    """
    keys = {f"{phase}/{name}": name for name in names if f"{phase}/{name}" in run.metrics}
    told = read_histories(uri, run.run_id, keys)
    lines = {keys[key]: thin(history, MOST_POINTS) for key, history in told.items()}
    return Curves(run, phase, lines, max(map(len, told.values()), default=0))


def thin(history: Sequence[tuple[int, float]], most: int) -> History:
    """At most `most` points of a curve (4 or more): of each of equal parts the lowest and the highest, so that no spike
    is lost, and the first and the last.
    """
    if len(history) <= most:
        return list(history)
    inner, parts = range(1, len(history) - 1), (most - 2) // 2
    kept = {0, len(history) - 1}
    for part in range(parts):
        own = inner[len(inner) * part // parts : len(inner) * (part + 1) // parts]
        kept |= {min(own, key=lambda at: history[at][1]), max(own, key=lambda at: history[at][1])}
    return [history[at] for at in sorted(kept)]
