"""The tracked runs of a sweep's trials, one for each, with all its steps and rungs.

Steps of recipes, of benchmarks and of a sweep's comparison are tracked by `app.tracked_job.GraphObserver`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from midmask.app.run_contents import all_datasets, base_tags, log_curve, log_recipe, metric_keys, model_of, run_name
from midmask.app.tracked_job import TrackedJob
from midmask.core.config import fingerprint, flatten
from midmask.core.words import clock
from midmask.experiment.changes import apply_changes
from midmask.experiment.events import Begun, Ended, Logged, StepEvent
from midmask.experiment.graph import Step
from midmask.store.artifact import load
from midmask.sweep.plan import Measured, summarise, trial_rungs
from midmask.sweep.space import briefly, describe_point
from midmask.sweep.study import Outcome
from midmask.sweep.trial import EndedEarly, RungMeasured, SweepProgress, TrialContext, TrialEvent, TrialStarted
from midmask.tracking.names import collection_key, metric_key, queries_key
from midmask.tracking.runs import TrackedRun


@dataclass
class _TrackedTrial:
    """The state of a trial's run."""

    name: str
    run: TrackedRun
    tags: dict[str, str]
    trainings: set[str]  # fingerprints of the trainings for the final measurement
    # Fingerprint -> optimiser steps of the fine-tuning stages before this one, so that a chart goes on after the last.
    before: dict[str, int]
    evaluations: Sequence[Step]  # of the last rung


class TrialsObserver:
    """Tracks and shows what happens in all trials of a sweep; called with one event after another, from one thread.

    Events of a trial can be lost: in a kill of the job, or with the channel's actor. What the study and the store of
    artifacts then have of a finished trial is tracked by `complete`.

    Args:
        sweep: the sweep's fingerprint.
    """

    def __init__(self, job: TrackedJob, context: TrialContext, progress: SweepProgress, *, sweep: str) -> None:
        self._job = job
        self._context = context
        self._progress = progress
        self._sweep = sweep
        self._trials: dict[str, _TrackedTrial] = {}
        self._complete: set[str] = set()  # trials that an earlier process has tracked to the end

    def __call__(self, report: TrialEvent) -> None:
        if isinstance(report.event, TrialStarted):
            self._start(report.trial, report.event)
        elif trial := self._trials.get(report.trial):  # else the report that it has started was lost
            self._observe(report.trial, trial, report.event)

    def _observe(self, source: str, trial: _TrackedTrial, event: StepEvent | RungMeasured | EndedEarly) -> None:
        match event:
            case Begun(step):
                self._job.progress.begin(step)
            case Logged():
                self._log(trial, event)
            case Ended():
                self._end(trial, event)
            case RungMeasured():
                self._measure(source, trial, event)
            case EndedEarly(how):
                trial.run.finish(how)

    def _start(self, source: str, start: TrialStarted) -> None:
        if not (source in self._trials and self._trials[source].run.is_open):
            self._progress.started(source, self._open(source, start).name)

    def _open(self, source: str, start: TrialStarted) -> _TrackedTrial:
        """Opens the trial's run; one whose process died and that is started again goes on in the run that it has."""
        space, recipe, measured = self._context.space, start.recipe, start.evaluations
        name = describe_point(space, start.point)
        base, identity = base_tags(self._job.name, recipe), self._identity(source)
        tags = {**base, "midmask.step": "trial", "midmask.fingerprint": identity, "midmask.sweep": self._sweep}
        title = run_name(f"trial {briefly(space, start.point)}", tags, identity)
        run = self._job.open_run(title, tags, flatten(recipe))
        run.watch()
        log_recipe(run, recipe)
        run.log_inputs(all_datasets(measured, self._context.storage))
        trial = _TrackedTrial(name, run, base, set(_trainings(measured)), _steps_before(measured), measured)
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
        log_curve(trial.run, step, event.artifact, before=trial.before.get(step.fingerprint, 0), if_begun=event.cached)

    def _log(self, trial: _TrackedTrial, event: Logged) -> None:
        step = event.step
        self._job.progress.advance(step, event.at)
        is_probe = step.name == "finetune" and step.fingerprint not in trial.trainings
        if not is_probe:
            trial.run.log(metric_keys(step.name, event.values), step=event.at + trial.before.get(step.fingerprint, 0))

    def _measure(self, source: str, trial: _TrackedTrial, rung: RungMeasured) -> None:
        space, measured = self._context.space, rung.measured
        objective = space.optimised[0]
        value = measured.measures[objective.measure]
        text = f"{objective.measure} {value:.4f} ({clock(rung.seconds)})"
        if rung.number < len(space.shares):
            self._log_probe(trial, rung.number, value)
            self._progress.measured(source, f"probe at {rung.share:g} of the pre-training: {text}")
            return
        self._finish(trial, rung.corpus, rung.queries, measured)
        self._progress.measured(source, f"dev: {text}")
        self._progress.ended(value, trial.name, mode=objective.mode)
        self._job.progress.best(f"{objective.measure} {self._progress.best}")

    def _finish(self, trial: _TrackedTrial, corpus: str, queries: int, measured: Measured) -> None:
        measures = {metric_key(corpus, "dev", name): mean for name, mean in measured.measures.items()}
        trial.run.log({**measures, **{f"cost/{name}": cost for name, cost in measured.costs.items()}}, step=0)
        collection = {collection_key(corpus): trial.evaluations[0].inputs["corpus"].fingerprint}
        trial.run.tag({**collection, queries_key(corpus, "dev"): str(queries)})
        trial.run.finish()

    def _log_probe(self, trial: _TrackedTrial, rung: int, value: float) -> None:
        name = metric_key("corpus", "dev", self._context.space.optimised[0].measure).rsplit("/", 1)[-1]
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
                results = [load(step.place(self._context.storage)).result for step in trial.evaluations]
                measured = summarise(trial.evaluations, results, self._context.storage)
                self._finish(trial, results[0]["corpus"], results[0]["queries"], measured)
            else:
                trial.run.finish("pruned")

    def _reopen(self, source: str, outcome: Outcome) -> _TrackedTrial | None:
        """The trial with what its trainings have left in the store; None if an earlier process has tracked it."""
        if source in self._complete:
            return None
        recipe = apply_changes(self._context.recipe, outcome.parameters)
        measured = trial_rungs(recipe, self._context.space, self._context.survey)[-1].evaluations
        tracked = self._job.tracker.find(self._identity(source), step="trial")
        if tracked.finished or not (tracked.unfinished or outcome.complete):  # a pruned run is not counted
            self._complete.add(source)
            return None
        trial = self._open(source, TrialStarted(outcome.parameters, recipe, measured))
        for step in _trainings(measured).values():
            if step.is_finished(self._context.storage):
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


def _trainings(measured: Sequence[Step]) -> dict[str, Step]:
    """Fingerprint -> each training for these evaluations."""
    return {step.fingerprint: step for one in measured for step in one.upstream() if step.kind.model}


def _steps_before(measured: Sequence[Step]) -> dict[str, int]:
    """Optimiser steps before each fine-tuning stage. Seeds repeat them, so the first seed's curve is the trial's."""
    before: dict[str, int] = {}
    for evaluation in measured:
        done = 0
        for step in evaluation.upstream():
            if step.name == "finetune":
                before[step.fingerprint] = done
                done += step.optimiser_steps
    return before
