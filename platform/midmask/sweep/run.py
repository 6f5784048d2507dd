"""A sweep from end to end: shared steps, trials, the winner held against its baselines, tables, and a sentence.

Each trial has a tracked run, with all its steps and rungs.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from midmask.app.run import compute
from midmask.app.run_contents import all_datasets, base_tags, log_recipe, log_report, run_name
from midmask.app.tracked_job import TrackedJob, TrackedSystem, open_job
from midmask.backend.channel import Channel
from midmask.backend.cluster import share_among_trials, whole
from midmask.core.config import flatten
from midmask.core.process import VERBOSE, is_on
from midmask.experiment.changes import apply_changes
from midmask.experiment.graph import Graph, Step, model_step
from midmask.experiment.plan import Plan, plan
from midmask.store.artifact import RECORD, Artifact, load, produce
from midmask.store.place import Place
from midmask.sweep.conclusion import Trials, conclude, full_report, summary, systems_of
from midmask.sweep.observer import TrialsObserver
from midmask.sweep.plan import (
    SPLITS,
    Entrant,
    Sweep,
    comparison_evaluations,
    entrants_of,
    expected_trials,
    final_evaluation,
)
from midmask.sweep.space import Space, briefly, budget, mark_of
from midmask.sweep.study import open_study, outcomes, remaining
from midmask.sweep.sweep_file import SWEEP_FILE
from midmask.sweep.trial import TrialContext, search
from midmask.tracking.names import metric_key

log = logging.getLogger(__name__)


def measure_entrants(entrants: Sequence[Entrant], job: TrackedJob) -> None:
    """Evaluates every entrant on every split, and tracks it as a system."""
    targets = [step for entrant in entrants for step in entrant.evaluations.values()]
    systems = [
        TrackedSystem(f"{one.label}, seed {one.seed}", one.recipe, one.evaluations, main=SPLITS[-1]) for one in entrants
    ]
    job = replace(job, use=replace(job.use, alone=job.use.side_by_side == 1))  # there are no trials any more
    # Of what is finished only the evaluations: trainings are in the runs of their trials.
    compute(job, systems, targets, has_run=lambda kind: kind.trains, finished=targets)


def run_sweep(sweep: Sweep) -> tuple[str, Place]:
    """Runs what is missing of a sweep; its summary (with --verbose, its report), and the folder of the best model."""
    options, recipe = sweep.options, sweep.recipe
    tags = {**base_tags(options.job, recipe), "midmask.step": "sweep", "midmask.fingerprint": sweep.fingerprint}
    name = run_name(options.job, tags, sweep.fingerprint)
    params = {**flatten(recipe), **{f"space.{path}": value for path, value in flatten(sweep.space).items()}}
    share = partial(share_among_trials, budget(sweep.space), options.workers, options.workers_per_training)
    with open_job(options, name, tags, params, finished=(sweep.place / RECORD).exists(), share=share) as job:
        if job is None:
            return _report(sweep, load(sweep.place))
        log_recipe(job.run, recipe)
        record = {"step": "sweep", "fingerprint": sweep.fingerprint, "config": sweep.space.model_dump(mode="json")}
        artifact = produce(sweep.place, record, lambda out: _make_sweep(sweep, job, out))
        log_report(job.run, str(artifact.result["report"]))
        job.run.log_file(artifact.place.local() / SWEEP_FILE)
        best = metric_key(recipe.corpus.short_name, "dev", sweep.space.measure)
        job.run.log({best: artifact.result["best"]}, step=0)
        return _report(sweep, artifact)


def _report(sweep: Sweep, artifact: Artifact) -> tuple[str, Place]:
    best = apply_changes(sweep.recipe, artifact.result["parameters"])
    step = model_step(final_evaluation(best, sweep.survey))
    assert step is not None, "a trial has an encoder"
    report = artifact.result["report"]
    shown = report if is_on(VERBOSE) else artifact.result.get("summary", report)  # which older sweeps lack
    return str(shown), step.place(Place(sweep.options.storage)) / "model"


def _make_sweep(sweep: Sweep, job: TrackedJob, out: Place) -> dict[str, Any]:
    """Shared steps, trials, the comparison of the best with its baselines, the report: all of a sweep, into `out`."""
    storage, recipe = job.storage, sweep.recipe
    planned, bm25 = plan(recipe, sweep.survey), sweep.bm25
    shared = _shared(sweep.space, planned, bm25.values())
    comparison = comparison_evaluations(sweep)
    later = [*expected_trials(sweep), *comparison]
    job.progress.enter("collection and BM25", Graph.left_in(storage, [*shared, *later]).unfinished.values())
    alone = replace(job, use=whole(sweep.options.training_workers))
    compute(alone, [TrackedSystem(recipe.name, recipe)], shared)
    # With the counts of what was prepared:
    job.run.log_inputs(all_datasets([planned.evaluation(recipe.evaluation)], storage))
    job.progress.enter("trials", Graph.left_in(storage, later).unfinished.values())
    study = open_study(sweep.study_storage(), sweep.study, sweep.space)
    left = remaining(study, sweep.space)
    with Channel.open() as channel:
        context = TrialContext(recipe, sweep.survey, sweep.space, storage, channel, job.use)
        observer = TrialsObserver(job, context, sweep=sweep.fingerprint)
        observer.complete(outcomes(study, sweep.space))
        with channel.forwarding(observer):
            finished = search(context, study, left, recipe.pretrain.seed)
        observer.close(finished)
    job.progress.enter("comparison", Graph.left_in(storage, comparison).unfinished.values())
    trials = Trials(sweep, finished)
    log.info("best on dev: %s; comparing it with its baselines", trials.best.label)
    chosen = entrants(trials)
    measure_entrants(chosen, job)
    compared = systems_of(chosen, bm25, storage)
    result = conclude(trials, compared)
    (out / SWEEP_FILE).write_json(result.model_dump(mode="json"))
    return {
        "report": full_report(result, compared),
        "summary": summary(result, compared),
        "best": trials.best.outcome.last,
        "parameters": trials.best.outcome.parameters,
    }


def _shared(space: Space, planned: Plan, bm25: Iterable[Step]) -> list[Step]:
    """The steps that all trials need, and BM25. A middle training that no parameter changes is trained once by all
    workers, instead of by one trial that the others wait for.
    """
    shared = [planned.pretraining_tokens, planned.tokens, *bm25]
    is_same = all(path.split(".")[0] in ("representation", "stages", "evaluation") for path in space.parameters)
    if planned.pretrained is not None and is_same:
        shared.append(planned.pretrained)
    return shared


def entrants(trials: Trials) -> list[Entrant]:
    """The systems of the final comparison, seed by seed: the best trial; with a cost also the marked ones; the
    baselines.
    """
    sweep, space, chosen = trials.sweep, trials.sweep.space, [trials.best]
    if space.cost:
        marked = {mark_of(space, trial.outcome.parameters): trial for trial in trials.complete}
        chosen += [marked[name] for name in space.marks if name in marked and marked[name] != trials.best]
    points = [trial.outcome.parameters for trial in chosen]
    recipes = {
        mark_of(space, point) or f"{sweep.recipe.name} {briefly(space, point)}": apply_changes(sweep.recipe, point)
        for point in points
    }
    recipes |= {baseline.name: baseline for baseline in sweep.baselines}
    systems = [entrants_of(label, recipe, space.seeds, sweep.survey) for label, recipe in recipes.items()]
    return [entrant for seed in zip(*systems, strict=True) for entrant in seed]
