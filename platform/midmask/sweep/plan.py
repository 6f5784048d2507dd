"""The plan of a sweep: a space on a recipe with the flags, checked; the evaluations of its trials and of its end."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna

from midmask.app.driver import apply_flags, named_recipe, scale_notes
from midmask.app.job import Options
from midmask.core.config import fingerprint, flatten
from midmask.errors import UserError
from midmask.evaluation import measures
from midmask.evaluation.step import DEFAULT_BY_ANSWERS, EvaluateConfig
from midmask.experiment.changes import apply_changes
from midmask.experiment.costs import costs_of
from midmask.experiment.graph import Step
from midmask.experiment.plan import plan, rungs
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.recipes.build import at_scale
from midmask.store.artifact import RECORD, Artifact
from midmask.store.place import Place
from midmask.sweep.space import Space, budget, check, grid
from midmask.sweep.study import open_study, outcomes


@dataclass(frozen=True)
class Measured:
    """The results of a trial's evaluation."""

    corpus: str
    queries: int
    measures: dict[str, float]
    costs: dict[str, float]  # by the names of `Costs`; unknown ones are left out

    @classmethod
    def by(cls, step: Step, evaluation: Artifact, storage: Place) -> "Measured":
        """What a trial's evaluation has measured."""
        result = evaluation.result
        costs = {name: float(value) for name, value in vars(costs_of(step, storage)).items() if value is not None}
        return cls(result["corpus"], result["queries"], result["measures"], costs)

    def of(self, objectives: Sequence[str]) -> tuple[float, ...]:
        """The values of objectives, which `sweep_for` has checked."""
        known = {**self.measures, **self.costs}
        return tuple(known[name] for name in objectives)


@dataclass(frozen=True)
class Rung:
    """The steps up to one measurement of a trial."""

    share: float  # of the middle training's steps
    pretrained: Step | None  # goes on from that of the rung before; None without a middle training
    evaluation: Step  # a probe; at the last rung the final evaluation


def trial_rungs(recipe: Recipe, space: Space, survey: Survey) -> list[Rung]:
    """A trial's plan."""
    plans = rungs(recipe, space.shares, survey)
    probes = [rung_evaluation(recipe, share, space, survey) for share in space.shares[:-1]]
    measured = [*probes, final_evaluation(recipe, survey)]
    return [
        Rung(share, steps.pretrained, evaluation)
        for share, steps, evaluation in zip(space.shares, plans, measured, strict=True)
    ]


def final_evaluation(recipe: Recipe, survey: Survey) -> Step:
    """A trial's last measurement: the whole protocol on dev."""
    return plan(recipe, survey).evaluation(_on_split(recipe, "dev"))


def rung_evaluation(recipe: Recipe, share: float, space: Space, survey: Survey) -> Step:
    """A rung's measurement: a fixed, short first stage, then at most `max_queries` dev queries."""
    first = recipe.stages[0]
    stage = first.model_copy(update={"train": first.train.model_copy(update={"steps": space.rungs.steps})})
    config = _on_split(recipe, "dev").model_copy(update={"max_queries": space.rungs.max_queries})
    return plan(recipe.model_copy(update={"stages": (stage,)}), survey, share=share).evaluation(config)


def _on_split(recipe: Recipe, split: str) -> EvaluateConfig:
    """The evaluation of a recipe on a split; selection uses dev alone."""
    return recipe.evaluation.model_copy(update={"split": split})


SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Entrant:
    """One system with one fine-tuning seed: a label for the table, its recipe, and its evaluation on each split."""

    label: str
    seed: int
    recipe: Recipe
    evaluations: dict[str, Step]


def entrants_of(label: str, recipe: Recipe, seeds: Sequence[int], survey: Survey) -> list[Entrant]:
    """The entrants of a system, one for each seed."""
    recipes = {seed: recipe.seeded(seed) for seed in seeds}
    return [Entrant(label, seed, one, _on_splits(plan(one, survey).evaluation, one)) for seed, one in recipes.items()]


def _on_splits(evaluate: Callable[[EvaluateConfig], Step], recipe: Recipe) -> dict[str, Step]:
    return {split: evaluate(_on_split(recipe, split)) for split in SPLITS}


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
        """Fingerprint of everything that the result depends on."""
        recipes = (self.recipe, *self.baselines)
        steps = [plan(recipe, self.survey).evaluation(recipe.evaluation).fingerprint for recipe in recipes]
        return fingerprint({"space": self.space.model_dump(mode="json"), "steps": steps})

    @property
    def bm25(self) -> dict[str, Step]:
        """Split -> evaluation of BM25."""
        return _on_splits(plan(self.recipe, self.survey).bm25_evaluation, self.recipe)

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
        UserError: for a path or value that the recipe refuses, or a flag that would change no trial.
    """
    _refuse_idle(options, space)
    base = _recipe(space, options.recipe or space.recipe, options)
    check(space, base)
    _check_measure(space, base)
    shared = replace(options, set_fields=_without_objective(options.set_fields))
    alike = space.model_copy(update={"settings": _without_objective(space.settings)})
    baselines = tuple(_recipe(alike, name, shared).fine_tuned_as(base) for name in space.baselines)
    return Sweep(space, base, baselines, options)


def _recipe(space: Space, name: str, options: Options) -> Recipe:
    """A recipe with the space's protocol, unless --protocol names another; then its settings; then the flags."""
    recipe, protocol = named_recipe(name), options.protocol or space.protocol
    if protocol is not None or options.scale == "published":
        recipe = at_scale(recipe, protocol or recipe.protocol, options.scale)
    recipe = apply_changes(recipe, space.settings, backbone_defaults=options.scale != "published")
    return apply_flags(recipe, options)


def _without_objective(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that baselines take too: those that are not about the middle training of one method."""
    return {path: value for path, value in changes.items() if not path.startswith("objective.")}


def _refuse_idle(options: Options, space: Space) -> None:
    """Raises UserError for a value of a field that the sweep varies: all trials have others, and baselines leave the
    fields of the method's objective out. (A parameter with a condition keeps the recipe's value where that fails.)
    """
    for path, value in options.set_fields.items():
        if path in space.parameters and path.startswith("objective.") and not space.parameters[path].when:
            raise UserError(
                f"--set {path}={value}: this sweep varies {path}, so no trial would have that value of the flag; leave "
                f"it out, or change parameters.{path} in the search space (--space FILE)"
            )


def _check_measure(space: Space, recipe: Recipe) -> None:
    """Raises UserError for a measure that no trial's evaluation will tell."""
    measured = recipe.evaluation.measures or (*measures.DEFAULT, "R@1000", *DEFAULT_BY_ANSWERS)
    if space.measure not in measured:
        raise UserError(
            f"measure = {space.measure!r} is not among those that are measured ({', '.join(measured)}); name it in "
            "settings: evaluation.measures"
        )


def describe(sweep: Sweep) -> str:
    """The text of --dry-run: the space, its points, and the steps that are finished."""
    storage = Place(sweep.options.storage)
    known = storage.is_path and (Path(storage.uri) / "optuna.db").exists()
    done = len(outcomes(open_study(sweep.study_storage(), sweep.study, sweep.space), sweep.space)) if known else 0
    lines = ["configuration:", *(f"  {path} = {value}" for path, value in flatten(sweep.recipe).items())]
    space, finished = sweep.space, (sweep.place / RECORD).exists()
    lines += ["", f"sweep {sweep.study}: {space.search} search of {budget(space)} trials, {done} of them done"]
    lines += [f"  {path}: {domain.model_dump(exclude_defaults=True)}" for path, domain in space.parameters.items()]
    lines += scale_notes(sweep.recipe, sweep.options)
    lines += [f"  baselines: bm25, {', '.join(space.baselines)}; seeds {list(space.seeds)}"]
    lines += ["  finished: the result would be printed again" if finished else "  to do"]
    return "\n".join(lines)


def expected_steps(sweep: Sweep) -> Iterator[Step]:
    """What a sweep computes: its trials, then the best and the baselines with every seed."""
    yield from expected_trials(sweep)
    yield from comparison_evaluations(sweep)


def expected_trials(sweep: Sweep) -> Iterator[Step]:
    """The measurements of all trials at all rungs, and the middle trainings before them, which go on from each other.

    Where trials are pruned, one of `reduction` goes on from each rung. More do, since ASHA does not wait for the others
    before it decides: the first at a rung always goes on.
    """
    space, recipes = sweep.space, _trial_recipes(sweep)
    for place, recipe in enumerate(recipes):
        for number, rung in enumerate(trial_rungs(recipe, space, sweep.survey)):
            if place >= math.ceil(len(recipes) / space.rungs.reduction**number):
                break
            yield rung.evaluation
            if rung.pretrained is not None:
                yield rung.pretrained


def _trial_recipes(sweep: Sweep) -> list[Recipe]:
    """The recipes of all trials. Without a grid, each trial is represented by the sweep's recipe with another seed in
    place of a point.
    """
    space = sweep.space
    points = grid(space) if space.search == "grid" else [{"pretrain.seed": number} for number in range(space.trials)]
    return [apply_changes(sweep.recipe, point) for point in points]


def comparison_evaluations(sweep: Sweep) -> Iterator[Step]:
    """The evaluations of the final comparison, in which the first trial stands for the best."""
    yield from sweep.bm25.values()
    for recipe in (_trial_recipes(sweep)[0], *sweep.baselines):
        for entrant in entrants_of(recipe.name, recipe, sweep.space.seeds, sweep.survey):
            yield from entrant.evaluations.values()
