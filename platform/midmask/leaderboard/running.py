"""Jobs that run: which of them live, what each does at the moment, how far its training is, and its best so far.

A run that MLflow shows as running may belong to a process that was killed, which only the process's own host knows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from midmask.leaderboard.rows import measure_names, rows
from midmask.tracking.names import LOG, PROGRESS
from midmask.tracking.opening import OWNER, is_gone
from midmask.tracking.reading import MetricPoint, TrackedRow

LATELY = timedelta(days=1)
"""For how long a run that failed or was killed is listed."""

PLANNED_STEPS = {
    "pretrain": r"pretrain\.steps",
    "finetune": r"stages\.\d+\.train\.steps",
    "teach": r"stages\.\d+\.teacher\.train\.steps",
    "generator": r"pseudo_queries\..*train\.steps",
}
"""Step that trains -> the dotted paths that may hold its number of optimiser steps."""

TRIAL = "trial"
IN_A_TRIAL = ("pretrain", "finetune")
"""Trainings of a sweep's trial, whose run has the values of both."""

Life = Literal["running", "killed", "unknown"]


@dataclass(frozen=True)
class BestSoFar:
    measure: str
    value: float
    name: str


@dataclass(frozen=True)
class RunningJob:
    """A run that is not nested in a running one, and the runs nested in it."""

    run: TrackedRow
    life: Life  # "killed": its process has ended; "unknown": its version names no process
    current: Sequence[TrackedRow]  # nested runs that are not finished
    finished: int  # number of nested runs that ended so
    cached: int  # number of nested runs that ended so
    best: BestSoFar | None

    @property
    def log(self) -> str:
        """Path of its log on the machine that runs it, empty if the run does not tell."""
        return self.run.tags.get(LOG, "")

    @property
    def line(self) -> str:
        """The last line of its progress (phase, steps, time left, best so far), empty if it has told none."""
        return self.run.tags.get(PROGRESS, "")


def running_jobs(runs: Sequence[TrackedRow], now: datetime) -> list[RunningJob]:
    """Every job that is tracked as running, in the order of the runs."""
    open_runs = {run.run_id for run in runs if run.status == "running"}
    nested: dict[str, list[TrackedRow]] = {}
    for run in runs:
        nested.setdefault(run.parent_id or "", []).append(run)
    return [
        _job(run, nested.get(run.run_id, []), now)
        for run in runs
        if run.run_id in open_runs and run.parent_id not in open_runs
    ]


def ended_early(runs: Iterable[TrackedRow], now: datetime) -> list[TrackedRow]:
    """The runs that failed or were killed lately, the last one first."""
    ended = [run for run in runs if run.status in ("failed", "killed") and run.ended and now - run.ended < LATELY]
    return sorted(ended, key=lambda run: run.ended or now, reverse=True)


def _job(run: TrackedRow, nested: Sequence[TrackedRow], now: datetime) -> RunningJob:
    active = [run, *(nested_run for nested_run in nested if nested_run.status == "running")]
    statuses = [nested_run.status for nested_run in nested]
    return RunningJob(
        run,
        _life(run.tags),
        active[1:],
        statuses.count("finished"),
        statuses.count("cached"),
        _best(nested),
    )


def _life(tags: Mapping[str, str]) -> Life:
    if OWNER not in tags:
        return "unknown"
    return "killed" if is_gone(tags) else "running"


def _best(nested: Sequence[TrackedRow]) -> BestSoFar | None:
    """The highest value of the first favourite measure on dev, or on any split if none has dev."""
    evaluated = rows(nested)
    evaluated = [row for row in evaluated if row.split == "dev"] or evaluated
    for measure in measure_names(evaluated)[:1]:
        best = max((row for row in evaluated if measure in row.measures), key=lambda row: row.measures[measure])
        return BestSoFar(f"{measure} on {best.corpus} {best.split}", best.measures[measure], best.name)
    return None


@dataclass(frozen=True)
class StepState:
    """The progress of a training."""

    training: str  # `pretrain`, `finetune`, …
    at: int  # steps done
    of: int | None  # steps planned; None: not known
    loss: float | None
    told: datetime | None  # when the loss was logged; None: not yet
    left: float | None  # seconds; None where not known, or where another training follows, as in a trial


def step_state(run: TrackedRow, last: Mapping[str, MetricPoint], now: datetime) -> StepState | None:
    """The state of a training's run, or of a trial's newest training; None for a step that trains nothing.

    Args:
        last: the last point of each of its metrics.
    """
    step = run.tags.get("midmask.step", "")
    if step == TRIAL:
        step = max(IN_A_TRIAL, key=lambda name: last[f"{name}/loss"].time if f"{name}/loss" in last else 0.0)
    if step not in PLANNED_STEPS:
        return None
    of = _planned(run, PLANNED_STEPS[step])
    loss, seconds = last.get(f"{step}/loss"), last.get(f"{step}/step_seconds")
    if loss is None:
        return StepState(step, 0, of, None, None, None)
    logged = datetime.fromtimestamp(loss.time, UTC)
    left = None
    if of is not None and seconds is not None and run.tags.get("midmask.step") != TRIAL:
        left = max(0.0, (of - loss.step) * seconds.value - max(0.0, (now - logged).total_seconds()))
    return StepState(step, loss.step, of, loss.value, logged, left)


def _planned(run: TrackedRow, paths: str) -> int | None:
    """The number of steps, None where fine-tuning stages differ in it: a run does not tell which stage it is."""
    counts = {value for path, value in run.params.items() if re.fullmatch(paths, path)}
    return int(counts.pop()) if len(counts) == 1 else None
