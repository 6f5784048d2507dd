"""What a sweep is before it runs: a space on a recipe, with the flags of a command line, checked; its plan in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna

from midmask.app.driver import apply_flags, scale_notes
from midmask.app.job import Options
from midmask.artifact import RECORD, Place
from midmask.errors import UserError
from midmask.evaluation import answers, measures
from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.plan import plan
from midmask.experiment.schema import Recipe
from midmask.experiment.step import Step
from midmask.experiment.survey import Survey
from midmask.identity import fingerprint, flatten
from midmask.recipes import RECIPES
from midmask.recipes.published import at_scale, with_changes
from midmask.sweep.entrants import SPLITS
from midmask.sweep.measurement import final_evaluations
from midmask.sweep.points import budget, check, grid
from midmask.sweep.space import COSTS, Space
from midmask.sweep.study import open_study, outcomes


@dataclass(frozen=True)
class Sweep:
    """A space on a recipe, with the flags of a command line applied to both. survey: of all places that they name."""

    space: Space
    recipe: Recipe
    baselines: tuple[Recipe, ...]
    options: Options
    survey: Survey = field(default_factory=Survey)

    @cached_property
    def fingerprint(self) -> str:
        """What the result depends on."""
        recipes = (self.recipe, *self.baselines)
        steps = [plan(recipe, self.survey).evaluation(recipe.evaluation).fingerprint for recipe in recipes]
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
    if protocol is not None or options.scale == "published":
        recipe = at_scale(recipe, protocol or recipe.protocol, options.scale)
    return apply_flags(with_changes(recipe, space.settings, options.scale), options)


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
    lines += scale_notes(sweep.recipe, sweep.options)
    finished = (sweep.place / RECORD).exists()
    lines += [f"  baselines: bm25, {', '.join(sweep.space.baselines)}; seeds {list(sweep.space.seeds)}"]
    lines += ["  finished: the result would be printed again" if finished else "  to do"]
    return "\n".join(lines)


def targets(sweep: Sweep) -> Iterator[Step]:
    """What a sweep computes at most: every trial to its end, then the best and the baselines with every seed."""
    for trial in trial_recipes(sweep):
        yield from final_evaluations(trial, sweep.space, sweep.survey)
    yield from final_targets(sweep)


def trial_recipes(sweep: Sweep) -> list[Recipe]:
    """Trials that are not of a grid are taken to be as large as the recipe's own, each with a seed in the place of its
    point.
    """
    space = sweep.space
    points = grid(space) if space.search == "grid" else [{"pretrain.seed": number} for number in range(space.trials)]
    return [apply_changes(sweep.recipe, point) for point in points]


def final_targets(sweep: Sweep) -> Iterator[Step]:
    """The evaluations of the final comparison, in which the first trial stands for the best."""
    space, recipe = sweep.space, sweep.recipe
    ranked = [recipe.evaluation.model_copy(update={"split": split}) for split in SPLITS]
    yield from (plan(recipe, sweep.survey).bm25_evaluation(config) for config in ranked)
    for entrant in (trial_recipes(sweep)[0], *sweep.baselines):
        seeded = [plan(entrant.seeded(seed), sweep.survey) for seed in space.seeds]
        yield from (one.evaluation(config) for one in seeded for config in ranked)
