"""What a job's driver does: lay out the plan, join the cluster, run the steps that are missing, and track all of it."""

import logging
from collections.abc import Mapping
from pathlib import Path

from midmask.artifact import Artifact, Place, load
from midmask.cluster.connection import connect
from midmask.cluster.job import Options, resolve_corpus
from midmask.cluster.lineage import all_datasets, run_name
from midmask.cluster.makers import cluster_makers
from midmask.cluster.observe import TrackingObserver, base_tags, log_report
from midmask.cluster.outlook import tell_cost
from midmask.cluster.report import results_table
from midmask.errors import UserError
from midmask.identity import fingerprint, flatten, override
from midmask.recipes import RECIPES
from midmask.recipes.needed_splits import refuse_missing_splits
from midmask.recipes.plan import Step, adopted
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.run import Runner, Silent
from midmask.recipes.schema import Recipe
from midmask.steps import FinetuneConfig, PretrainConfig
from midmask.teacher.teach import TeachConfig
from midmask.tracking import Tracker

log = logging.getLogger(__name__)


def recipe_for(options: Options, default: str) -> Recipe:
    """The recipe a command line asks for: `--recipe`, then `--protocol`, `--corpus`, `--pretrain-on`, `--seed`, and
    every `--set`.

    Raises:
        UserError: for an unknown recipe or field, an impossible value, or a collection that nothing would read.
    """
    recipe = changed(RECIPES[options.recipe or default](), options)
    if options.pretrain_on and recipe.objective is None:
        raise UserError(
            f"--pretrain-on: {recipe.name} has no middle training that would read it; name another, as --recipe cotmote"
        )
    return recipe


def changed(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with the shared flags applied; `--set` is last, so it wins.

    Raises:
        UserError: as `recipe_for`, or for what cannot be done on the recipe's backbone.
    """
    if options.protocol is not None:
        recipe = PROTOCOLS[options.protocol]().on(recipe, options.scale)
    changes: dict[str, object] = {"corpus.name": options.corpus}
    if options.pretrain_on:
        changes["pretrain_on"] = list(options.pretrain_on)
    if options.seed is not None:
        changes |= {path: options.seed for path in flatten(recipe) if path.endswith(".train.seed")}
        changes["pretrain.seed"] = options.seed
    wanted = override(override(recipe, changes), dict(options.changes))
    read = [resolve_corpus(name, options.home) for name in wanted.pretrain_on]
    wanted = override(wanted, {"pretrain_on": read})
    wanted.check()
    return wanted


def dry_run(recipe: Recipe, targets: Mapping[str, Step], storage: Place) -> str:
    """The resolved configuration, then every step in order: cached or to do, and its size where it is known."""
    lines = ["configuration:"]
    lines += [f"  {path} = {value}" for path, value in flatten(recipe).items()]
    lines += ["", "steps:"]
    runner = Runner(storage, {}, Silent())
    seen: set[str] = set()
    for target in targets.values():
        for step in target.upstream():
            if step.fingerprint not in seen:
                seen.add(step.fingerprint)
                state = "cached" if runner.is_finished(step) else "to do "
                lines.append(f"  {state}  {step.name:<15} {step.fingerprint}  {_work(step)}".rstrip())
    return "\n".join(lines)


def _work(step: Step) -> str:
    """What a training step costs, in rows."""
    if not isinstance(step.config, PretrainConfig | FinetuneConfig | TeachConfig):
        return ""
    count, rows = step.optimiser_steps, step.config.train.batch_size
    return f"{count} steps x {rows} rows = {count * rows:,} rows"


def run_steps(options: Options, recipe: Recipe, targets: Mapping[str, Step]) -> dict[str, Artifact]:
    """The targets' artifacts, by name; what is finished is not computed again, and links the run that computed it.

    Empty after --dry-run, which prints the plan instead.

    Raises:
        UserError: before anything is computed, for queries that a collection lacks.
    """
    refuse_missing_splits(targets.values())
    storage = Place(options.storage)
    if options.dry_run:
        print(dry_run(recipe, targets, storage))
        tell_cost(targets.values(), options)
        return {}
    identity = fingerprint({"job": options.job, **{name: step.fingerprint for name, step in targets.items()}})
    tags = {**base_tags(options.job, recipe), "midmask.step": "job", "midmask.fingerprint": identity}
    name = run_name(options.job, tags, identity)
    with Tracker(options.tracking_uri, options.home) as tracker:
        finished = tracker.find(identity, step="job").finished
        runner = Runner(storage, {}, Silent())
        if finished and all(runner.is_finished(step) for step in targets.values()):
            tracker.link_cached(finished, f"{name} (cached)", tags=tags)
            log.info("nothing to compute: this was done before, in the tracked run %s", finished)
            return {key: load(step.place(storage)) for key, step in targets.items()}
        connect()
        with tracker.run(name, tags=tags, params=flatten(recipe)) as parent:
            observer = TrackingObserver(tracker, parent, options.job, recipe, storage)
            runner = Runner(storage, cluster_makers(options.workers), observer)
            done = {key: runner.run(step) for key, step in targets.items()}
            parent.read(all_datasets(targets.values(), storage))
            if evaluations := {key: done[key] for key, step in targets.items() if step.name == "evaluate"}:
                log_report(parent, results_table(evaluations))
            return done


def searched_with(recipe: Recipe, folder: str | None) -> tuple[Recipe, Step | None]:
    """For --model: the recipe with that folder's tokenizer, and the folder as a step; without it, the recipe alone."""
    if folder is None:
        return recipe, None
    place = str(Path(folder).absolute())
    return override(recipe, {"tokens.tokenizer": place}), adopted(place)
