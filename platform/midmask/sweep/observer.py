"""The tracked runs of a sweep's trials, one for each, with all its steps and rungs.

Steps of recipes, of benchmarks and of a sweep's comparison are tracked by `app.tracked_job.GraphObserver`.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from midmask.app.run_contents import all_datasets, base_tags, log_curve, log_recipe, metric_keys, model_of, run_name
from midmask.app.tracked_job import TrackedJob
from midmask.core.config import fingerprint, flatten
from midmask.core.words import clock
from midmask.experiment.changes import apply_changes
from midmask.experiment.events import Begun, Ended, Logged
from midmask.experiment.graph import Step
from midmask.store.artifact import load
from midmask.sweep.plan import Measured, final_evaluation
from midmask.sweep.space import ParameterPoint, briefly, describe_point
from midmask.sweep.study import Outcome
from midmask.sweep.trial import EndedEarly, RungMeasured, TrialContext, TrialEvent, TrialStarted
from midmask.tracking.names import ARTIFACT, collection_key, metric_key, queries_key
from midmask.tracking.runs import TrackedRun

log = logging.getLogger(__name__)


@dataclass
class _TrackedTrial:
    """The state of a trial's run."""

    name: str
    run: TrackedRun
    tags: dict[str, str]
    evaluation: Step  # of the last rung
    trainings: dict[str, int]  # for it, as `_trainings`; a chart of a later stage goes on after the one before


class TrialsObserver:
    """Tracks and shows what happens in all trials of a sweep; called with one event after another, from one thread.

    Events of a trial can be lost: in a kill of the job, or with the channel's actor. What the study and the store of
    artifacts then have of a finished trial is tracked by `complete`.

    Args:
        sweep: the sweep's fingerprint.
    """

    def __init__(self, job: TrackedJob, context: TrialContext, *, sweep: str) -> None:
        self._job = job
        self._context = context
        self._sweep = sweep
        self._trials: dict[str, _TrackedTrial] = {}
        self._best: float | None = None

    def __call__(self, report: TrialEvent) -> None:
        event, trial = report.event, self._trials.get(report.trial)
        if isinstance(event, TrialStarted):
            if trial is None or not trial.run.is_open:
                log.info("trial %s: begins", self._open(report.trial, event.point).name)
            return
        if trial is None:  # the report that it has started was lost
            return
        match event:
            case Begun(step):
                self._job.progress.begin(step)
            case Logged():
                self._log(trial, event)
            case Ended():
                self._end(trial, event)
            case RungMeasured():
                self._measure(trial, event)
            case EndedEarly(how):
                trial.run.finish(how)

    def _open(self, source: str, point: ParameterPoint) -> _TrackedTrial:
        """Opens the trial's run; one whose process died and that is started again goes on in the run that it has."""
        space, recipe = self._context.space, apply_changes(self._context.recipe, point)
        evaluation = final_evaluation(recipe, self._context.survey)
        base, identity = base_tags(self._job.name, recipe), self._identity(source)
        tags = {**base, "midmask.step": "trial", "midmask.fingerprint": identity, "midmask.sweep": self._sweep}
        title = run_name(f"trial {briefly(space, point)}", tags, identity)
        run = self._job.open_run(title, tags, flatten(recipe))
        run.watch()
        log_recipe(run, recipe)
        run.log_inputs(all_datasets([evaluation], self._context.storage))
        trial = _TrackedTrial(describe_point(space, point), run, base, evaluation, _trainings(evaluation))
        self._trials[source] = trial
        return trial

    def _identity(self, source: str) -> str:
        return fingerprint({"sweep": self._sweep, "trial": source})

    def _end(self, trial: _TrackedTrial, event: Ended) -> None:
        """A model that was there already is an input, one that this trial trained its output. The curve of a training
        that this trial began before a kill is completed.
        """
        step = event.step
        if event.cached:
            self._job.progress.drop([step])
        else:
            self._job.progress.end(step)
        if step.fingerprint not in trial.trainings:
            return
        model = model_of(step, self._context.storage, trial.tags)
        if event.cached:
            trial.run.log_input_model(model)
        else:
            trial.run.log_output_model(model, step.optimiser_steps)
        log_curve(trial.run, step, event.artifact, before=trial.trainings[step.fingerprint], if_begun=event.cached)

    def _log(self, trial: _TrackedTrial, event: Logged) -> None:
        step = event.step
        self._job.progress.advance(step, event.at)
        is_probe = step.name == "finetune" and step.fingerprint not in trial.trainings
        if not is_probe:
            at = event.at + trial.trainings.get(step.fingerprint, 0)
            trial.run.log(metric_keys(step.name, event.values), step=at)

    def _measure(self, trial: _TrackedTrial, rung: RungMeasured) -> None:
        measure = self._context.space.measure
        value = rung.measured.measures[measure]
        text = f"{measure} {value:.4f} ({clock(rung.seconds)})"
        if rung.number < len(self._context.space.shares):
            self._log_probe(trial, rung.number, value)
            log.info("trial %s: probe at %g of the pre-training: %s", trial.name, rung.share, text)
            return
        self._finish(trial, rung.measured)
        log.info("trial %s: dev: %s", trial.name, text)
        if self._best is None or value > self._best:
            self._best = value
            self._job.progress.best = f"{measure} {value:.4f} ({trial.name})"

    def _finish(self, trial: _TrackedTrial, measured: Measured) -> None:
        corpus = measured.corpus
        measures = {metric_key(corpus, "dev", name): mean for name, mean in measured.measures.items()}
        trial.run.log({**measures, **{f"cost/{name}": cost for name, cost in measured.costs.items()}}, step=0)
        collection = {collection_key(corpus): trial.evaluation.inputs["corpus"].fingerprint}
        made = {ARTIFACT: str(trial.evaluation.place(self._context.storage))}  # which `midmask gc` then keeps
        trial.run.tag({**collection, queries_key(corpus, "dev"): str(measured.queries), **made})
        trial.run.finish()

    def _log_probe(self, trial: _TrackedTrial, rung: int, value: float) -> None:
        name = metric_key("corpus", "dev", self._context.space.measure).rsplit("/", 1)[-1]
        trial.run.log({f"probe/{name}": value}, step=rung)  # two segments: no leaderboard row

    def complete(self, outcomes: Iterable[Outcome]) -> None:
        """Finishes the runs of trials that the study has a result of and MLflow has not.

        Args:
            outcomes: in the order in which the trials were asked.
        """
        for outcome in outcomes:
            source = fingerprint(outcome.parameters)
            trial = self._trials.get(source) or self._reopen(source, outcome)
            if trial is None or not trial.run.is_open:
                continue
            for rung in range(1, len(self._context.space.shares)):
                if rung in outcome.measures:
                    self._log_probe(trial, rung, outcome.measures[rung])
            if outcome.complete:
                done = load(trial.evaluation.place(self._context.storage))
                self._finish(trial, Measured.by(trial.evaluation, done, self._context.storage))
            else:
                trial.run.finish("pruned")

    def _reopen(self, source: str, outcome: Outcome) -> _TrackedTrial | None:
        """The trial with what its trainings have left in the store; None if an earlier process has tracked it."""
        tracked = self._job.tracker.find(self._identity(source), step="trial")
        if tracked.finished or not (tracked.unfinished or outcome.complete):  # a pruned run is not counted
            return None
        trial = self._open(source, outcome.parameters)
        for step in trial.evaluation.upstream():
            if step.fingerprint in trial.trainings and step.is_finished(self._context.storage):
                self._end(trial, Ended(step, load(step.place(self._context.storage)), cached=True))
        return trial

    def close(self, outcomes: Sequence[Outcome]) -> None:
        """After the last trial: what has not finished has failed.

        Args:
            outcomes: of all trials that the study has a result of.
        """
        self.complete(outcomes)
        for trial in self._trials.values():
            trial.run.finish("failed")


def _trainings(evaluation: Step) -> dict[str, int]:
    """Fingerprint of each training for an evaluation -> optimiser steps of the fine-tuning stages before it."""
    trainings: dict[str, int] = {}
    done = 0
    for step in evaluation.upstream():
        if step.kind.model:
            trainings[step.fingerprint] = done if step.name == "finetune" else 0
            done += step.optimiser_steps if step.name == "finetune" else 0
    return trainings
