"""The cells of a benchmark: every system under every condition that makes sense, each with a seed, and its steps.

What makes no sense is left out with a reason: nothing disappears silently.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from midmask.benchmark.design import NONE, Benchmark, variant
from midmask.benchmark.results import Results, SystemKey
from midmask.core.config import flatten
from midmask.corpora.config import CorpusConfig
from midmask.encoders.reading import SIZES
from midmask.errors import UserError, unknown
from midmask.evaluation.overlap import OverlapConfig
from midmask.experiment.changes import apply_changes
from midmask.experiment.evaluations import SPLIT, zero_shot_collections
from midmask.experiment.graph import Step
from midmask.experiment.plan import Plan, plan
from midmask.experiment.schema import Recipe
from midmask.experiment.training_steps import Survey
from midmask.recipes import RECIPES
from midmask.retrieve.bm25 import BM25


@dataclass(frozen=True)
class BenchmarkCell:
    """One system under one condition with one seed."""

    key: SystemKey
    seed: int
    recipe: Recipe
    # (short name of the corpus, split) -> step; the splits of the cell's corpus come first, test last of them
    evaluations: Mapping[tuple[str, str], Step]
    pretrain_seed: int | None = None  # of the middle training; None where the benchmark trains each method once
    overlaps: tuple[Step, ...] = ()  # of what its middle training and its fine-tuning read with what is evaluated

    @property
    def targets(self) -> list[Step]:
        return [*self.overlaps, *self.evaluations.values()]

    @property
    def main(self) -> tuple[str, str]:
        """The last split of the corpus itself."""
        corpus = self.recipe.corpus.short_name
        return [name for name in self.evaluations if name[0] == corpus][-1]

    @property
    def name(self) -> str:
        if self.key.system == BM25:
            return BM25
        conditions = (self.key.collection, self.key.representation, self.key.setting)
        middle = "" if self.pretrain_seed is None else f", middle training {self.pretrain_seed}"
        named = ", ".join(part for part in conditions if part != NONE)
        return f"{self.key.system}, {named}{middle}, seed {self.seed}"


def is_fine_tuned(benchmark: Benchmark, key: SystemKey) -> bool:
    """Whether a key has any fine-tuning stage."""
    return key.system != BM25 and benchmark.settings[key.setting].stages != 0


def cell_of(benchmark: Benchmark, key: SystemKey, recipe: Recipe, seed: int, survey: Survey) -> BenchmarkCell:
    """The evaluations of a recipe under a key's conditions, on the benchmark's splits and its other collections."""
    planned = plan(recipe, survey)
    evaluate = evaluator(benchmark, key, planned)
    evaluations: dict[tuple[str, str], Step] = {}
    for split in benchmark.splits:
        config = recipe.evaluation.model_copy(update={"split": split})
        evaluations[recipe.corpus.short_name, split] = evaluate(config)
    elsewhere = recipe.evaluation.model_copy(update={"split": SPLIT})
    for label, corpus in searched_only(benchmark).items():
        evaluations[label, SPLIT] = evaluate(elsewhere, on=planned.elsewhere(corpus))
    pretrain_seed = recipe.pretrain.seed if benchmark.pretrain_seeds and recipe.objective else None
    overlaps = () if key.system == BM25 else overlap_steps(planned, evaluations, is_tuned=is_fine_tuned(benchmark, key))
    return BenchmarkCell(key, seed, recipe, evaluations, pretrain_seed, overlaps)


def overlap_steps(planned: Plan, evaluations: Mapping[tuple[str, str], Step], *, is_tuned: bool) -> tuple[Step, ...]:
    """The steps that look for what is evaluated in what the trainings read, one for each stage that there is."""
    evaluated = {f"evaluated{number}": step.inputs["corpus"] for number, step in enumerate(evaluations.values())}
    read = {"middle training": planned.pretraining_tokens.inputs["corpus"]} if planned.pretrained else {}
    read |= {"fine-tuning": planned.corpus} if is_tuned else {}
    return tuple(
        Step("overlap", OverlapConfig(stage=stage, evaluated=tuple(evaluations)), {"corpus": corpus, **evaluated})
        for stage, corpus in read.items()
    )


def cell_on(
    benchmark: Benchmark, cell: BenchmarkCell, corpus: CorpusConfig, split: str, survey: Survey, **changes: Any
) -> BenchmarkCell:
    """The cell of the same system, with one evaluation: on a split of another collection.

    Args:
        changes: of fields of the evaluation.
    """
    planned = plan(cell.recipe, survey)
    config = cell.recipe.evaluation.model_copy(update={"split": split, **changes})
    step = evaluator(benchmark, cell.key, planned)(config, on=planned.elsewhere(corpus))
    return replace(cell, evaluations={(cell.recipe.corpus.short_name, split): step})


def evaluator(benchmark: Benchmark, key: SystemKey, planned: Plan) -> Callable[..., Step]:
    """The function that makes evaluation steps of a key's system, as `Plan.evaluation`: of BM25, of the encoder before
    any fine-tuning, or of the last stage's encoder.
    """
    if key.system == BM25:
        return planned.bm25_evaluation
    if is_fine_tuned(benchmark, key):
        return planned.evaluation
    return partial(planned.evaluation, model=planned.untuned)


def searched_only(benchmark: Benchmark) -> dict[str, CorpusConfig]:
    """Label -> collection of the benchmark that is only searched. A set of BEIR's that has the name of the corpus is
    `beir-NAME`: NQ by its answers is not BEIR's NQ.

    Raises:
        UserError: for a collection that is not BEIR's and has such a name.
    """
    if not (collections := zero_shot_collections(benchmark.zero_shot)):
        return {}
    tuned = CorpusConfig(name=benchmark.corpus).short_name
    if (same := collections.get(tuned)) and same.format != "beir":
        raise UserError(
            f"--zero-shot {same.name}: {tuned!r} is the name of the --corpus too, and results could not tell them "
            "apart; rename one of the folders"
        )
    return {f"beir-{label}" if label == tuned else label: corpus for label, corpus in collections.items()}


SECTIONS = ("objective", "backbone", "representation")
"""Where the fields of a variant are looked for, in this order."""

HEADLESS = ("simcse", "diffcse", "ict", "laprador", "spider", "e5", "gte", "distil_vectors")
"""Systems that leave the MLM head as it was."""


@dataclass(frozen=True)
class Layout:
    """All cells of a benchmark, and the combinations that are left out."""

    benchmark: Benchmark
    cells: tuple[BenchmarkCell, ...]
    left_out: Mapping[SystemKey, str] = field(default_factory=dict)  # combination that is not run -> why
    recorded: Mapping[str, Results] = field(default_factory=dict)  # cell's name -> results measured elsewhere
    recorded_overlaps: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # likewise -> rows of its overlaps

    def steps(self) -> dict[str, Step]:
        """Every step behind the cells by fingerprint, in an order in which they can be run."""
        targets = (target for cell in self.cells for target in cell.targets)
        steps: dict[str, Step] = {}
        for step in (step for target in targets for step in target.upstream()):
            steps.setdefault(step.fingerprint, step)
        return steps


def lay_out(benchmark: Benchmark) -> Layout:
    """The cells of a benchmark in the order of its systems, and what is left out.

    Raises:
        UserError: for an unknown field, a collection that is not there, or if nothing is left.
    """
    cells: list[BenchmarkCell] = []
    left_out: dict[SystemKey, str] = {}
    owners: dict[str, SystemKey] = {}
    survey = Survey()
    for key in benchmark.keys():
        if reason := reason_not_run(benchmark, key) or _impossible(recipe := recipe_of(benchmark, key)):
            left_out[key] = reason
            continue
        seeded = [
            cell_of(benchmark, key, recipe.seeded(seed, pretrain=pretrain), seed, survey)
            for pretrain, seed in _seeds(benchmark, key, recipe)
        ]
        identity = " ".join(step.fingerprint for step in seeded[0].evaluations.values())
        owner = owners.setdefault(identity, key)
        if (owner.system, owner.collection) != (key.system, key.collection):
            left_out[key] = f"the same experiment as {owner.system} ({owner.collection})"
        else:
            cells += seeded
    if not cells:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise UserError(f"benchmark {benchmark.name}: nothing is left to run ({reasons})")
    return Layout(benchmark, tuple(cells), left_out)


def _seeds(benchmark: Benchmark, key: SystemKey, recipe: Recipe) -> list[tuple[int, int]]:
    """The seeds (of the middle training, of the fine-tuning) that a system is trained with.

    Each middle training is fine-tuned with seeds of its own, as many as the benchmark has, so that no two of them share
    their batches; a system without middle training is fine-tuned with all of these. They follow from the seed of the
    middle training alone, so a benchmark may be run in parts.
    """
    pretrain_seed, is_tuned = recipe.pretrain.seed, is_fine_tuned(benchmark, key)
    seeds, span = benchmark.seeds if is_tuned else benchmark.seeds[:1], max(benchmark.seeds) - min(benchmark.seeds) + 1
    middle = {pretrain: pretrain * span for pretrain in benchmark.pretrain_seeds} or {pretrain_seed: 0}
    nested = [(pretrain, seed + first) for pretrain, first in middle.items() for seed in seeds]
    if recipe.objective:
        return nested
    return [(pretrain_seed, seed) for _, seed in nested] if is_tuned else [(pretrain_seed, benchmark.seeds[0])]


def reason_not_run(benchmark: Benchmark, key: SystemKey) -> str | None:
    """Why a combination is not run; None if it is."""
    if key.system == BM25:
        return None
    name, _ = variant(key.system)
    for condition in (key.collection, key.representation, key.setting):
        if key.system not in (allowed := benchmark.only.get(condition, (key.system,))):
            return f"{benchmark.name} runs {condition} with {', '.join(allowed)} alone"
    if key.representation not in benchmark.settings[key.setting].protocols:
        return f"{key.setting} has no {key.representation} form"
    if key.representation not in ("dense", "late") and name in HEADLESS:
        return f"{name} leaves the MLM head as it was, so its words mean nothing before fine-tuning"
    return None


def _impossible(recipe: Recipe) -> str | None:
    """Why a recipe cannot be run, or is another one under a second name; None if neither."""
    if recipe.backbone.fresh and recipe.backbone.name in SIZES:
        return f"backbone {recipe.backbone.name} has random weights in any case, so this is the same as without fresh"
    try:
        recipe.check()
    except UserError as error:
        return str(error)
    return None


def recipe_of(benchmark: Benchmark, key: SystemKey) -> Recipe:
    """The recipe behind a key: the system's own middle training, the setting's fine-tuning, the benchmark's sizes.

    Raises:
        UserError: for an unknown field or an impossible value.
    """
    name, fields = variant(key.system)
    base = RECIPES["none" if name == BM25 else name]()
    changes: dict[str, Any] = {}
    if name != BM25:
        setting = benchmark.settings[key.setting]
        base = setting.on(base, key.representation, benchmark.scale)  # type: ignore[arg-type]
        changes = dict(setting.changes)
    overrides = benchmark.own.get(key.representation, {}) | benchmark.own.get(name, {})
    changes = {**benchmark.changes, **overrides, **changes}
    changes |= {_path(base, field): value for field, value in fields.items()}
    changes |= {"corpus.name": benchmark.corpus, "evaluation.measures": list(benchmark.measures)}
    read = benchmark.collections.get(key.collection, ())
    return apply_changes(base, {**changes, "pretrain_on": list(read)})


def _path(recipe: Recipe, name: str) -> str:
    """The dotted path that a variant's field stands for."""
    known = flatten(recipe)
    paths = [path for section in SECTIONS if (path := f"{section}.{name}") in known]
    if not paths and name not in known:
        raise unknown(f"field of {recipe.name}", name, [path for path in known if path.startswith(SECTIONS)])
    return paths[0] if paths else name


def group_by_reason(left_out: Mapping[SystemKey, str]) -> list[str]:
    """A line per reason, with the combinations that it holds for."""
    reasons: dict[str, list[str]] = {}
    for key, reason in left_out.items():
        reasons.setdefault(reason, []).append(f"{key.system} ({key.collection}, {key.representation}, {key.setting})")
    return [f"- {', '.join(keys)}: {reason}" for reason, keys in reasons.items()]
