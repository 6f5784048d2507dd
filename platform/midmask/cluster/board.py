"""Turns what trials report into tracked runs and lines of progress; the driver's only ear while a sweep runs."""

import logging
from dataclasses import dataclass
from typing import Any

from midmask.cluster.observe import base_tags, named
from midmask.cluster.progress import SweepProgress, clock
from midmask.cluster.trial import Context
from midmask.identity import fingerprint, flatten
from midmask.recipes.points import described
from midmask.tracking import TrackedRun, Tracker, metric_key

log = logging.getLogger(__name__)


@dataclass
class _Trial:
    """What is known of a running trial."""

    name: str
    run: TrackedRun


class Board:
    """Called with every row of the channel, in order, from one thread."""

    def __init__(
        self, tracker: Tracker, parent: TrackedRun, context: Context, progress: SweepProgress, *, job: str, sweep: str
    ) -> None:
        self._tracker = tracker
        self._parent = parent
        self._context = context
        self._progress = progress
        self._job = job
        self._sweep = sweep
        self._trials: dict[str, _Trial] = {}
        self._best: float | None = None

    def __call__(self, source: str, row: dict[str, Any]) -> None:
        event = row["event"]
        if event == "start":
            self._start(source, row["parameters"])
        elif event == "log":
            self._log(source, row)
        elif event == "rung":
            self._rung(source, row)

    def _start(self, source: str, parameters: dict[str, Any]) -> None:
        name = described(self._context.space, parameters)
        recipe = self._context.recipe_at(parameters)
        tags = {
            **base_tags(self._job, recipe),
            "midmask.step": "trial",
            "midmask.fingerprint": fingerprint({"sweep": self._sweep, "trial": source}),
        }
        run = self._tracker.run(f"trial {name}", tags=tags, params=flatten(recipe), parent=self._parent.id)
        self._trials[source] = _Trial(name, run)
        self._progress.started(source, name)

    def _log(self, source: str, row: dict[str, Any]) -> None:
        loss = row["values"].get("train/loss")
        self._progress.step(source, row["step"], row["at"], row["of"], loss)
        is_probe = row["step"] == "finetune" and row["of"] == self._context.space.rungs.steps
        if source in self._trials and not is_probe:
            self._trials[source].run.log(named(row["step"], row["values"]), step=row["at"])

    def _rung(self, source: str, row: dict[str, Any]) -> None:
        """A rung was measured; the last one is the trial's final evaluation."""
        space, trial = self._context.space, self._trials[source]
        objective = space.targets[0]
        value = row["measures"][objective.measure]
        text = f"{objective.measure} {value:.4f} ({clock(row['seconds'])})"
        if row["number"] < len(space.shares):
            name = metric_key(row["corpus"], "dev", objective.measure).rsplit("/", 1)[-1]
            trial.run.log({f"probe/{name}": value}, step=row["number"])  # two segments: no leaderboard row
            self._progress.measured(source, f"probe at {row['share']:g} of the pre-training: {text}")
            return
        for name, mean in row["measures"].items():
            trial.run.log({metric_key(row["corpus"], "dev", name): mean}, step=0)
        trial.run.log({f"cost/{name}": cost for name, cost in row["costs"].items()}, step=0)
        trial.run.finish()
        self._progress.measured(source, f"dev: {text}")
        sign = 1 if objective.mode == "max" else -1
        better = self._best is None or sign * value > sign * self._best
        self._best = value if better else self._best
        self._progress.ended(value, trial.name, better=better)

    def close(self) -> None:
        """After the last trial: what has not finished was ended at a rung (or failed, which Ray has reported)."""
        for trial in self._trials.values():
            trial.run.finish("pruned")
