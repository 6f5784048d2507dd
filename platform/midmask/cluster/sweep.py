"""A sweep from end to end: shared steps, trials, the winner held against its baselines, tables, and a sentence."""

import logging
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
import ray

from midmask.artifact import RECORD, Place, load, produce
from midmask.cluster.board import Board
from midmask.cluster.channel import Channel
from midmask.cluster.comparison import SPLITS, Entrant, Scored, compare, evaluation
from midmask.cluster.conclusion import Conclusion
from midmask.cluster.connection import connect
from midmask.cluster.driver import changed
from midmask.cluster.importance import importance
from midmask.cluster.job import Options, resolve_corpus
from midmask.cluster.makers import cluster_makers
from midmask.cluster.observe import TrackingObserver, base_tags, log_evaluation
from midmask.cluster.progress import SweepProgress
from midmask.cluster.search import Resources, resources, search
from midmask.cluster.study import open_study, outcomes, remaining
from midmask.cluster.trial import Context
from midmask.cluster.trials import Trial, Trials
from midmask.errors import UserError
from midmask.evaluate import answers, measures
from midmask.identity import fingerprint, flatten, override
from midmask.recipes import RECIPES
from midmask.recipes.costs import costs_of
from midmask.recipes.plan import contents_of, plan
from midmask.recipes.points import briefly, budget, check, mark_of
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.run import Runner
from midmask.recipes.schema import Recipe
from midmask.recipes.space import COSTS, Space, load_space
from midmask.tracking import TrackedRun, Tracker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep:
    """A space on a recipe, with the flags of a command line applied to both."""

    space: Space
    recipe: Recipe
    baselines: tuple[Recipe, ...]
    options: Options

    @cached_property
    def fingerprint(self) -> str:
        """What the result depends on; worked out once, since it reads the corpus."""
        steps = [plan(recipe).evaluation(recipe.evaluation).fingerprint for recipe in (self.recipe, *self.baselines)]
        return fingerprint({"space": self.space.model_dump(mode="json"), "steps": steps})

    @property
    def place(self) -> Place:
        return Place(self.options.storage) / "sweep" / self.fingerprint

    @property
    def study(self) -> str:
        return f"{self.space.name}-{self.fingerprint}"

    def study_storage(self) -> optuna.storages.RDBStorage:
        """A SQLite file of its own: beside the artifacts if they lie on a disk, else in the project's folder."""
        storage = Place(self.options.storage)
        folder = Path(storage.uri) if storage.is_path else self.options.home
        folder.mkdir(parents=True, exist_ok=True)
        return optuna.storages.RDBStorage(f"sqlite:///{folder / 'optuna.db'}")


def sweep(options: Options, flags: Namespace, path: Path) -> None:
    """The whole of a sweep job: reads the space, applies the flags, runs, prints."""
    space = load_space(path)
    if flags.corpus is None and space.corpus is not None:
        options = replace(options, corpus=resolve_corpus(space.corpus, options.home))
    given = {name: getattr(flags, name) for name in ("search", "trials") if getattr(flags, name) is not None}
    one = sweep_for(options, override(space, given))
    if options.dry_run:
        print(describe(one))
        return
    print(run_sweep(one))
    print(f"\n{options.where_to_look()}")


def sweep_for(options: Options, space: Space) -> Sweep:
    """The sweep a command line asks for, checked before anything starts.

    Raises:
        UserError: for a path or value that the recipe refuses.
    """

    base = _recipe(space, options.recipe or space.recipe, options)
    check(space, base)
    _check_objectives(space, base)
    shared = replace(options, changes=_without_objective(options.changes))
    alike = space.model_copy(update={"settings": _without_objective(space.settings)})
    baselines = tuple(_recipe(alike, name, shared).fine_tuned_as(base) for name in space.baselines)
    return Sweep(space, base, baselines, options)


def _recipe(space: Space, name: str, options: Options) -> Recipe:
    """A recipe with the space's protocol, unless --protocol names another; then its settings; then the flags."""
    recipe, protocol = RECIPES[name](), options.protocol or space.protocol
    if protocol is not None:
        recipe = PROTOCOLS[protocol]().on(recipe, options.scale)
    return changed(override(recipe, dict(space.settings)), replace(options, protocol=None))


def _without_objective(changes: Mapping[str, Any]) -> dict[str, Any]:
    """What of these changes is not about the middle training of one method, so that baselines take it too."""
    return {path: value for path, value in changes.items() if not path.startswith("objective.")}


def _check_objectives(space: Space, recipe: Recipe) -> None:
    """Raises UserError for an objective that no trial's evaluation will tell."""
    told = recipe.evaluation.measures or (*measures.DEFAULT, "R@1000", *answers.DEFAULT)
    for objective in space.targets:
        if objective.measure not in (*told, *COSTS):
            raise UserError(
                f"measure = {objective.measure!r} is not among those that are measured ({', '.join(told)}) nor a cost "
                f"({', '.join(COSTS)}); name it in settings: evaluation.measures"
            )


def describe(sweep: Sweep) -> str:
    """What --dry-run prints: the space, its points, and what is done already."""
    storage = Place(sweep.options.storage)
    known = storage.is_path and (Path(storage.uri) / "optuna.db").exists()
    done = len(outcomes(open_study(sweep.study_storage(), sweep.study, sweep.space), sweep.space)) if known else 0
    lines = ["configuration:", *(f"  {path} = {value}" for path, value in flatten(sweep.recipe).items())]
    lines += [
        "",
        f"sweep {sweep.study}: {sweep.space.search} search of {budget(sweep.space)} trials, {done} of them done",
    ]
    lines += [
        f"  {path}: {distribution.model_dump(exclude_defaults=True)}"
        for path, distribution in sweep.space.parameters.items()
    ]
    finished = (sweep.place / RECORD).exists()
    lines += [f"  baselines: bm25, {', '.join(sweep.space.baselines)}; seeds {list(sweep.space.seeds)}"]
    lines += ["  finished: the result would be printed again" if finished else "  to do"]
    return "\n".join(lines)


def run_sweep(sweep: Sweep) -> str:
    """Runs what is missing of a sweep and returns its report."""
    options, recipe = sweep.options, sweep.recipe
    tags = {**base_tags(options.job, recipe), "midmask.step": "sweep", "midmask.fingerprint": sweep.fingerprint}
    name = f"{options.job}-{sweep.fingerprint[:6]}"
    with Tracker(options.tracking_uri, options.home) as tracker:
        finished = tracker.find(sweep.fingerprint, step="sweep").finished
        if finished and (sweep.place / RECORD).exists():
            tracker.link_cached(finished, f"{name} (cached)", tags=tags)
            log.info("nothing to compute: this sweep was done before, in the tracked run %s", finished)
            return str(load(sweep.place).result["report"])
        connect()
        use = resources(ray.cluster_resources(), options.workers)
        params = {**flatten(recipe), **{f"space.{path}": value for path, value in flatten(sweep.space).items()}}
        with tracker.run(name, tags=tags, params=params) as parent:
            record = {"step": "sweep", "fingerprint": sweep.fingerprint, "config": sweep.space.model_dump(mode="json")}
            artifact = produce(sweep.place, record, lambda out: _run(sweep, tracker, parent, use))
            parent.log_text(str(artifact.result["report"]), "report.md")
            parent.log(
                {"sweep/best": artifact.result["best"], "sweep/rung_share": artifact.result["rung_share"]}, step=0
            )
            return str(artifact.result["report"])


def _run(sweep: Sweep, tracker: Tracker, parent: TrackedRun, use: Resources) -> dict[str, Any]:
    storage, recipe = Place(sweep.options.storage), sweep.recipe
    contents = contents_of(recipe)
    observer = TrackingObserver(tracker, parent, sweep.options.job, sweep.recipe, storage)
    runner = Runner(storage, cluster_makers(sweep.options.workers), observer)
    planned = plan(recipe, contents)
    runner.run(planned.pretraining_tokens)
    runner.run(planned.tokens)
    ranked = {split: recipe.evaluation.model_copy(update={"split": split}) for split in SPLITS}
    bm25 = {split: runner.run(planned.bm25_evaluation(config)) for split, config in ranked.items()}
    channel = Channel.open()
    context = Context(recipe.model_dump(mode="json"), contents, sweep.space, storage, channel)
    study = open_study(sweep.study_storage(), sweep.study, sweep.space)
    done, left = len(outcomes(study, sweep.space)), remaining(study, sweep.space)
    progress = SweepProgress(done + left.count, done, use.trials, lambda line: log.info("%s", line))
    board = Board(tracker, parent, context, progress, job=sweep.options.job, sweep=sweep.fingerprint)
    with channel.forwarding(board):
        found = search(context, study, left, use, sweep.recipe.pretrain.seed)
        trials = Trials(sweep.space, recipe, contents, storage, found)
        log.info("best on dev: %s; comparing it with its baselines", trials.best.label)
        scored = compare(_entrants(sweep, trials), sweep.space.seeds, storage, channel, cpus=use.cpus, gpus=use.gpus)
    board.close()
    _track(sweep, tracker, parent, scored)
    end = Conclusion(trials, scored, bm25, importance(study, sweep.space))
    return {
        "report": end.text(),
        "best": trials.best.outcome.last,
        "parameters": trials.best.outcome.parameters,
        "rung_share": trials.rung_share(),
    }


def _entrants(sweep: Sweep, trials: Trials) -> list[Entrant]:
    """Who is compared in the end: the best trial; with several objectives also the marked ones; the baselines."""

    def entrant(trial: Trial) -> Entrant:
        name = mark_of(sweep.space, trial.outcome.parameters)
        label = name or f"{sweep.recipe.name} {briefly(sweep.space, trial.outcome.parameters)}"
        return Entrant(label, override(sweep.recipe, trial.outcome.parameters))

    chosen = [entrant(trials.best)]
    if sweep.space.has_several_objectives:
        found = {mark_of(sweep.space, trial.outcome.parameters): trial for trial in trials.complete}
        chosen += [entrant(found[name]) for name in sweep.space.marks if name in found and found[name] != trials.best]
    return chosen + [Entrant(baseline.name, baseline) for baseline in sweep.baselines]


def _track(sweep: Sweep, tracker: Tracker, parent: TrackedRun, scored: list[Scored]) -> None:
    """A leaderboard row for every system and seed; a system that an earlier sweep has tracked is linked."""
    for one in scored:
        recipe = one.entrant.recipe.seeded(one.seed)
        identity = fingerprint({split: artifact.fingerprint for split, artifact in one.evaluations.items()})
        tags = {**base_tags(sweep.options.job, recipe), "midmask.step": "evaluate", "midmask.fingerprint": identity}
        name = f"{one.entrant.label}, seed {one.seed}"
        finished = tracker.find(identity, step="evaluate").finished
        if finished:
            tracker.link_cached(finished, f"{name} (cached)", tags=tags, parent=parent.id)
            continue
        with tracker.run(name, tags=tags, params=flatten(recipe), parent=parent.id) as run:
            for split, artifact in one.evaluations.items():
                log_evaluation(run, artifact, costs_of(evaluation(recipe, split), Place(sweep.options.storage)))
