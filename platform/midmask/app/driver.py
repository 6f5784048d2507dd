"""The driver of a job: lays out the plan, runs the missing steps, and prints their costs and results.

The end of a job's output is the same for all jobs:

the result in a sentence
the tables
where the model, or what else was made, lies; the README.md of a model says what loads it
the commands that show it (MLflow's UI, the leaderboard), and the one that makes it again
"""

import logging
from collections.abc import Iterable, Mapping

from midmask.app.job import SAVED, Options, resolve_corpus, saved_recipe
from midmask.core.config import flatten, override
from midmask.core.process import VERBOSE, is_on, same_command
from midmask.core.redaction import redacted
from midmask.corpora.reader import judged_splits
from midmask.errors import UserError
from midmask.estimate import as_text, estimate, refuse_impossible, shape_named
from midmask.experiment.changes import apply_changes, as_folder_reads, check_folder, refuse_idle
from midmask.experiment.evaluations import refuse_missing_splits, usual_split
from midmask.experiment.graph import Step
from midmask.experiment.schema import Recipe, recipe_from
from midmask.experiment.searching import adopted
from midmask.experiment.steps import TrainingConfig
from midmask.recipes import RECIPES
from midmask.recipes.build import at_scale, list_unpublished
from midmask.retrieve.bm25 import BM25
from midmask.store.artifact import Artifact
from midmask.store.place import Place
from midmask.store.pretrained import model_folder
from midmask.tracking.names import command_over

log = logging.getLogger(__name__)


def tell_cost(targets: Iterable[Step], options: Options, *, side_by_side: bool = False) -> None:
    """Prints the estimated cost of the unfinished steps among these and their inputs, on `--on` or this machine.

    Args:
        side_by_side: whether several trainings run at once, as in sweeps and benchmarks.

    Raises:
        UserError: for an unknown shape; with the sum, if the plan could never run there.
    """
    shape = None if options.on is None else shape_named(options.on)
    limits = {"workers": options.workers, "per_training": options.workers_per_training}
    plan = estimate(targets, Place(options.storage), shape, **limits, side_by_side=side_by_side)
    print(f"\n{as_text(plan)}")
    refuse_impossible(plan)


def ending(
    options: Options,
    sentence: str,
    tables: Iterable[str],
    made: Mapping[str, object],
    next_step: str = "",
) -> str:
    """The text.

    Args:
        made: what it is, such as `model` -> where it lies; what the job was for comes first.
        next_step: a command for the reader, which then stands with the leaderboard's in place of MLflow's and of the
            job's own, unless --verbose asks for all.
    """
    parts = [sentence, *tables, "\n".join(f"{name}: {redacted(str(place))}" for name, place in made.items())]
    leaderboard = command_over(options.tracking_uri, "leaderboard")
    if next_step and not is_on(VERBOSE):
        parts.append(f"pictures: {leaderboard}\nnext: {next_step}")
    else:
        parts.append(f"{command_over(options.tracking_uri, 'ui')}\n{leaderboard}\nmake it again: {same_command()}")
    return "\n\n".join(part for part in parts if part)


def named_recipe(name: str) -> Recipe:
    """The recipe of this name, or the one that a run has saved in the file of this name.

    Raises:
        UserError: for an unknown name, or a file that holds no recipe of this version.
    """
    if not name.endswith(SAVED):
        return RECIPES[name]()
    try:
        return recipe_from(saved_recipe(name))
    except UserError as error:
        raise UserError(f"--recipe {name}: {error}") from None


def recipe_for(options: Options, default: str) -> Recipe:
    """The recipe a command line asks for: `--recipe`, then `--protocol`, `--corpus`, `--pretrain-on`, `--seed`, and
    every `--set`.

    Raises:
        UserError: for an unknown recipe or field, an impossible value, or a collection that nothing would read.
    """
    recipe = named_recipe(options.recipe or default)
    if options.protocol is not None or options.scale == "published":
        recipe = at_scale(recipe, options.protocol or recipe.protocol, options.scale)
    recipe = apply_flags(recipe, options)
    if options.pretrain_on and recipe.objective is None:
        raise UserError(
            f"--pretrain-on: {recipe.name} has no middle training that would read it; name another, as --recipe cotmote"
        )
    return recipe


def apply_flags(recipe: Recipe, options: Options) -> Recipe:
    """The recipe with `--corpus`, `--pretrain-on`, `--seed` and every `--set`, which is last, so it wins.

    Raises:
        UserError: as `recipe_for`, or for what cannot be done on the recipe's backbone.
    """
    by_flags: dict[str, object] = {"corpus.name": options.corpus}
    if options.pretrain_on:
        by_flags["pretrain_on"] = list(options.pretrain_on)
    if options.seed is not None:
        by_flags |= recipe.all_seeds(options.seed)
    refuse_idle(recipe, options.set_fields)
    recipe = override(recipe, by_flags)
    recipe = apply_changes(recipe, options.set_fields, backbone_defaults=options.scale != "published")
    sources = [resolve_corpus(name, options.home) for name in recipe.pretrain_on]
    recipe = override(recipe, {"pretrain_on": sources})
    recipe.check()
    return recipe


def scale_notes(recipe: Recipe, options: Options) -> list[str]:
    """A line for each field that `--scale published` does not make as published."""
    if options.scale != "published":
        return []
    return [f"--scale published, but {note}" for note in list_unpublished(recipe)]


def dry_run(recipe: Recipe, targets: Mapping[str, Step], storage: Place) -> str:
    """The resolved configuration, then every step in order: cached or to do, and its size where it is known."""
    lines = ["configuration:"]
    lines += [f"  {path} = {value}" for path, value in flatten(recipe).items()]
    lines += ["", "steps:"]
    seen: set[str] = set()
    for target in targets.values():
        for step in target.upstream():
            if step.fingerprint not in seen:
                seen.add(step.fingerprint)
                state = "cached" if step.is_finished(storage) else "to do "
                lines.append(f"  {state}  {step.name:<15} {step.fingerprint}  {_work(step)}".rstrip())
    return "\n".join(lines)


def _work(step: Step) -> str:
    """The size of a training step, in rows."""
    if not isinstance(step.config, TrainingConfig):
        return ""
    count, rows = step.optimiser_steps, step.config.train.batch_size
    return f"{count} steps x {rows} rows = {count * rows:,} rows"


def compute_or_show(options: Options, recipe: Recipe, targets: Mapping[str, Step]) -> dict[str, Artifact]:
    """The targets' artifacts, by name; what is finished is not computed again, and links the run that computed it.

    Empty after --dry-run, which prints the plan instead.

    Raises:
        UserError: before anything is computed, for queries that a collection lacks.
    """
    refuse_missing_splits(targets.values())
    notes = scale_notes(recipe, options)
    if options.dry_run:
        print("\n".join([dry_run(recipe, targets, Place(options.storage)), *(["", *notes] if notes else [])]))
        tell_cost(targets.values(), options)
        return {}
    from midmask.app.run import run_tracked  # here, so that a dry run waits for neither Ray nor MLflow

    for note in notes:
        log.warning("%s", note)
    return run_tracked(options, recipe, targets)


def recipe_for_folder(recipe: Recipe, folder: str | None, options: Options) -> tuple[Recipe, Step | None]:
    """For --model: the recipe that reads texts as that folder's files say, but for what --set or a saved recipe says;
    and the folder as a step. Without a folder, the recipe alone.

    Raises:
        UserError: as `as_folder_reads` and, but for a dry run, `check_folder`.
    """
    if folder is None:
        return recipe, None
    place = model_folder(folder, field="--model", choices=(BM25,)).absolute()
    if not options.has_saved_recipe:
        recipe = as_folder_reads(recipe, place, options.set_fields.keys())
    if not options.dry_run:  # classes of models take seconds to be imported
        check_folder(recipe, place)
    return recipe, adopted(str(place))


def choose_split(recipe: Recipe, choice: str | None, options: Options, *, trains: bool) -> tuple[Recipe, str]:
    """The recipe of an evaluation, and whose queries are searched: those of `choice`, else dev, else test.

    Where nothing is trained, the collection stays in the splits of its files, unless --set or a saved recipe says
    otherwise: one with a test split alone is searched for all of its queries.

    Raises:
        UserError: for a split that the collection does not have.
    """
    if not trains and not options.has_saved_recipe and not {"corpus", "corpus.splits"} & options.set_fields.keys():
        recipe = override(recipe, {"corpus.splits": "official"})
    splits = judged_splits(recipe.corpus)
    split = choice or usual_split(splits)
    if split not in splits:
        available = f"it has {', '.join(splits)}" if splits else "it has no judged queries"
        drawn = "" if trains or not splits else "; --set corpus.splits=complete draws train, dev and test from these"
        raise UserError(f"--split {split}: {recipe.corpus.name} has no such split: {available}{drawn}.")
    return recipe, split
