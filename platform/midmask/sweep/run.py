"""A sweep from end to end: shared steps, trials, the winner held against its baselines, tables, and a sentence."""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from midmask.app.lineage import all_datasets, run_name
from midmask.app.run import run_recipe_steps
from midmask.app.run_contents import base_tags, log_report
from midmask.app.tracked_job import TrackedJob, open_job
from midmask.artifact import RECORD, Artifact, Place, load, produce
from midmask.backend.channel import Channel
from midmask.backend.resources import share_among_trials, whole
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.evaluated import model_step
from midmask.experiment.graph import Graph
from midmask.experiment.plan import Plan, plan
from midmask.experiment.step import Step
from midmask.identity import fingerprint, flatten
from midmask.leaderboard.sweep_result import SWEEP_FILE, parse_sweep
from midmask.progress import SweepProgress
from midmask.sweep.comparison import compare
from midmask.sweep.conclusion import Conclusion
from midmask.sweep.entrants import SPLITS, Entrant, entrants_of
from midmask.sweep.expected import expected_trials
from midmask.sweep.importance import importance
from midmask.sweep.measurement import final_evaluations
from midmask.sweep.observer import TrialsObserver
from midmask.sweep.plan import Sweep, final_targets
from midmask.sweep.plots import draw
from midmask.sweep.points import briefly, budget, mark_of
from midmask.sweep.result import build_result
from midmask.sweep.search import search
from midmask.sweep.space import Space
from midmask.sweep.study import open_study, outcomes, remaining
from midmask.sweep.trial import TrialContext
from midmask.sweep.trials import Trial, Trials
from midmask.tracking import TrackedRun

log = logging.getLogger(__name__)

PHASES = SHARED, TRIALS, COMPARISON = "collection and BM25", "trials", "comparison"
"""Of a sweep's progress."""


def run_sweep(sweep: Sweep) -> tuple[str, Place]:
    """Runs what is missing of a sweep; its report, and the folder of the best trial's model."""
    options, recipe = sweep.options, sweep.recipe
    tags = {**base_tags(options.job, recipe), "midmask.step": "sweep", "midmask.fingerprint": sweep.fingerprint}
    name = run_name(options.job, tags, sweep.fingerprint)
    params = {**flatten(recipe), **{f"space.{path}": value for path, value in flatten(sweep.space).items()}}
    use = partial(share_among_trials, budget(sweep.space), options.workers, options.workers_per_training)
    with open_job(
        options, name, tags, params, finished=(sweep.place / RECORD).exists(), share=use, phases=PHASES
    ) as job:
        if job is None:
            return _report(sweep, load(sweep.place))
        record = {"step": "sweep", "fingerprint": sweep.fingerprint, "config": sweep.space.model_dump(mode="json")}
        artifact = produce(sweep.place, record, lambda out: _run(sweep, job, out))
        _log_report(job.run, artifact)
        job.run.log({f"sweep/{name}": artifact.result[name] for name in ("best", "rung_share")}, step=0)
        return _report(sweep, artifact)


def _report(sweep: Sweep, artifact: Artifact) -> tuple[str, Place]:
    best = apply_changes(sweep.recipe, artifact.result["parameters"])
    step = model_step(final_evaluations(best, sweep.space, sweep.survey)[0])
    assert step is not None, "a trial has an encoder"
    return str(artifact.result["report"]), step.place(Place(sweep.options.storage)) / "model"


def _run(sweep: Sweep, job: TrackedJob, out: Place) -> dict[str, Any]:
    storage, use, recipe = job.storage, job.use, sweep.recipe
    planned = plan(recipe, sweep.survey)
    bm25 = {split: planned.bm25_evaluation(recipe.evaluation.model_copy(update={"split": split})) for split in SPLITS}
    shared = _shared(sweep.space, planned, bm25.values())
    whole_job = {SHARED: shared, TRIALS: expected_trials(sweep), COMPARISON: final_targets(sweep)}
    job.progress.plan({name: Graph.left_in(storage, steps).left.values() for name, steps in whole_job.items()})
    run_recipe_steps(recipe, shared, job, whole(sweep.options.training_workers), SHARED)
    job.run.log_inputs(
        all_datasets([planned.evaluation(recipe.evaluation)], storage)
    )  # with the counts of what was prepared
    job.progress.enter(TRIALS)
    study = open_study(sweep.study_storage(), sweep.study, sweep.space)
    done, left = len(outcomes(study, sweep.space)), remaining(study, sweep.space)
    progress = SweepProgress(done + left.count, done, lambda line: log.info("%s", line))
    with Channel.open() as channel:
        context = TrialContext(recipe.model_dump(mode="json"), sweep.survey, sweep.space, storage, channel, use)
        observer = TrialsObserver(job, context, progress, sweep=sweep.fingerprint)
        with channel.forwarding(observer):
            found = search(context, study, left, use, sweep.recipe.pretrain.seed)
        observer.close({fingerprint(outcome.parameters) for outcome in found})
    job.progress.enter(COMPARISON)
    trials = Trials(sweep.space, recipe, sweep.survey, storage, found)
    log.info("best on dev: %s; comparing it with its baselines", trials.best.label)
    compared = entrants(sweep, trials)
    compare(compared, job, COMPARISON)
    against = {split: load(step.place(storage)) for split, step in bm25.items()}
    end = Conclusion(trials, compared, against, importance(study, sweep.space))
    result = build_result(end, study=sweep.study, sweep=sweep.fingerprint)
    (out / SWEEP_FILE).write_json(result.model_dump(mode="json"))
    return {
        "report": end.text(),
        "best": trials.best.outcome.last,
        "parameters": trials.best.outcome.parameters,
        "rung_share": trials.rung_share(),
    }


def _shared(space: Space, planned: Plan, bm25: Iterable[Step]) -> list[Step]:
    """What all trials need, and BM25. A middle training that no parameter changes is trained by all workers, once,
    instead of by one trial that the others wait for.
    """
    shared = [planned.pretraining_tokens, planned.tokens, *bm25]
    if planned.pretrained is not None and _shares_pretraining(space):
        shared.append(planned.pretrained)
    return shared


def _shares_pretraining(space: Space) -> bool:
    """Whether no parameter is of anything that the middle training depends on."""
    return all(path.split(".")[0] in ("representation", "stages", "evaluation") for path in space.parameters)


def _log_report(parent: TrackedRun, artifact: Artifact) -> None:
    """The report, its data, and plots of them, in the sweep's run."""
    folder = artifact.place.local()
    log_report(parent, str(artifact.result["report"]))
    parent.log_file(folder / SWEEP_FILE)
    for path in draw(parse_sweep((artifact.place / SWEEP_FILE).read_json()), folder / "figures"):
        parent.log_file(path, "figures")


def entrants(sweep: Sweep, trials: Trials) -> list[Entrant]:
    """Who is compared in the end, seed by seed: the best trial; with several objectives also the marked ones; the
    baselines.
    """
    space, chosen = sweep.space, [trials.best]
    if space.has_several_objectives:
        found = {mark_of(space, trial.outcome.parameters): trial for trial in trials.complete}
        chosen += [found[name] for name in space.marks if name in found and found[name] != trials.best]
    recipes = {_label(sweep, trial): apply_changes(sweep.recipe, trial.outcome.parameters) for trial in chosen}
    recipes |= {baseline.name: baseline for baseline in sweep.baselines}
    systems = [entrants_of(label, recipe, space.seeds, sweep.survey) for label, recipe in recipes.items()]
    return [one for seed in zip(*systems, strict=True) for one in seed]


def _label(sweep: Sweep, trial: Trial) -> str:
    """A trial's mark, else its recipe and point."""
    point = trial.outcome.parameters
    return mark_of(sweep.space, point) or f"{sweep.recipe.name} {briefly(sweep.space, point)}"
