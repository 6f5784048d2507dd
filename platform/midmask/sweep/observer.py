"""The observer of a sweep's trials: a tracked run for each, with all its steps and rungs, and lines of progress."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from midmask.app.lineage import all_datasets, model_of, run_name
from midmask.app.run_contents import base_tags, metric_keys
from midmask.app.tracked_job import TrackedJob
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten
from midmask.progress import SweepProgress, clock
from midmask.sweep.measurement import final_evaluations
from midmask.sweep.points import briefly, describe_point
from midmask.sweep.trial import TrialContext
from midmask.tracking import TrackedRun, collection_key, metric_key, queries_key

log = logging.getLogger(__name__)


@dataclass
class _Trial:
    """What is known of a running trial.

    trainings: fingerprint -> what it trains for its final measurement. before: fingerprint -> optimiser steps of the
    fine-tuning stages before this one, so that a chart goes on where the last stage ended. collection: fingerprint of
    the collection that the trial is evaluated on.
    """

    name: str
    run: TrackedRun
    tags: dict[str, str]
    trainings: dict[str, Step]
    before: dict[str, int]
    collection: str


class TrialsObserver:
    """Called with every row of the channel, in order, from one thread.

    Args:
        sweep: the sweep's fingerprint.
    """

    def __init__(self, job: TrackedJob, context: TrialContext, progress: SweepProgress, *, sweep: str) -> None:
        self._job = job
        self._context = context
        self._progress = progress
        self._sweep = sweep
        self._trials: dict[str, _Trial] = {}

    def __call__(self, source: str, row: dict[str, Any]) -> None:
        handlers = {"start": self._start, "begin": self._begin, "log": self._log, "end": self._end, "rung": self._rung}
        handlers["early end"] = self._end_early
        if handler := handlers.get(row["event"]):
            handler(source, row)

    def _start(self, source: str, row: dict[str, Any]) -> None:
        """Opens the trial's run; one whose process died and that is started again goes on in the run that it has."""
        context, parameters = self._context, row["parameters"]
        if source in self._trials and self._trials[source].run.is_open:
            return
        name, recipe = describe_point(context.space, parameters), context.recipe_at(parameters)
        base, identity = base_tags(self._job.name, recipe), fingerprint({"sweep": self._sweep, "trial": source})
        tags = {**base, "midmask.step": "trial", "midmask.fingerprint": identity}
        title = run_name(f"trial {briefly(context.space, parameters)}", tags, identity)
        run = self._job.open_run(title, tags, flatten(recipe))
        self._job.tracker.watch(run)
        measured = final_evaluations(recipe, context.space, context.survey)
        run.log_inputs(all_datasets(measured, context.storage))
        steps = {step.fingerprint: step for one in measured for step in one.upstream() if step.kind.model}
        self._trials[source] = _Trial(
            name, run, base, steps, _steps_before(measured), measured[0].inputs["corpus"].fingerprint
        )
        self._progress.started(source, name)

    def _begin(self, source: str, row: dict[str, Any]) -> None:
        self._job.progress.begin(row["fingerprint"], row["step"], self._job.use.side_by_side)

    def _end(self, source: str, row: dict[str, Any]) -> None:
        """A model that another trial has trained is an input, one that this trial trained its output."""
        if row["cached"]:
            self._job.progress.drop([row["fingerprint"]])
        else:
            self._job.progress.end(row["fingerprint"], row["step"])
        trial = self._trials.get(source)
        if trial is None or row["fingerprint"] not in trial.trainings:
            return
        step = trial.trainings[row["fingerprint"]]
        model = model_of(step, self._context.storage, trial.tags)
        if row["cached"]:
            trial.run.log_input_model(model)
        else:
            trial.run.log_output_model(model, step.optimiser_steps)

    def _log(self, source: str, row: dict[str, Any]) -> None:
        trial = self._trials.get(source)
        if trial is None:
            return
        self._job.progress.advance(row["fingerprint"], row["at"] / row["of"])
        self._progress.step(source, row["step"], row["at"], row["of"], row["values"].get("train/loss"))
        is_probe = row["step"] == "finetune" and row["fingerprint"] not in trial.trainings
        if not is_probe:
            at = row["at"] + trial.before.get(row["fingerprint"], 0)
            trial.run.log(metric_keys(row["step"], row["values"]), step=at)

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
        collection = {collection_key(row["corpus"]): trial.collection}
        trial.run.tag({**collection, queries_key(row["corpus"], "dev"): str(row["queries"])})
        trial.run.log({f"cost/{name}": cost for name, cost in row["costs"].items()}, step=0)
        trial.run.finish()
        self._progress.measured(source, f"dev: {text}")
        self._progress.ended(value, trial.name, mode=objective.mode)
        self._job.progress.best(f"{objective.measure} {self._progress.best}")

    def _end_early(self, source: str, row: dict[str, Any]) -> None:
        if trial := self._trials.get(source):
            trial.run.finish(row["how"])

    def close(self, ended: Collection[str]) -> None:
        """After the last trial: what has not finished was pruned at a rung, or failed, and its end did not get here.

        Args:
            ended: sources of the trials that the study has a result of.
        """
        for source, trial in self._trials.items():
            trial.run.finish("pruned" if source in ended else "failed")


def _steps_before(measured: list[Step]) -> dict[str, int]:
    """Of every fine-tuning stage. Seeds repeat the same steps, so the first one's curve is the trial's."""
    before: dict[str, int] = {}
    for evaluation in measured:
        done = 0
        for step in evaluation.upstream():
            if step.name == "finetune":
                before[step.fingerprint] = done
                done += step.optimiser_steps
    return before
