"""A benchmark as data, and its cells: every system under every condition that makes sense, each with a seed.

What makes no sense is left out with a reason: nothing disappears silently.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, model_validator

from midmask.benchmark.results import SystemKey
from midmask.encoders.backbone import SIZES
from midmask.errors import UserError, unknown
from midmask.identity import Config, flatten
from midmask.recipes import RECIPES
from midmask.recipes.backbone_defaults import apply_changes
from midmask.recipes.elsewhere import SPLIT, collections
from midmask.recipes.plan import Step, plan
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.schema import Recipe
from midmask.recipes.survey import Survey

Kind = Literal["dense", "splade", "lexical", "hybrid"]
"""What is scored: a dense vector, SPLADE's words, the words of DupMAE's ordinary tokens, or both kinds together."""

VIEWS = {"dense": "dense", "splade": "lexical", "lexical": "lexical", "hybrid": "all"}

BM25 = "bm25"
NONE = "none"
SECTIONS = ("objective", "backbone", "representation")
"""Where the fields of a variant such as retromae[decoding=basic] are looked for, the first first."""

HEADLESS = ("simcse", "ict")
"""Methods that leave the MLM head as it was, so that words have no meaning to begin with."""


class Setting(Config):
    """A fine-tuning that all systems go through."""

    protocols: dict[Kind, str] = Field(min_length=1, description="representation -> protocol, as in their table")
    stages: int | None = Field(None, ge=1, description="only the protocol's first stages; none: all")
    by_view: bool = Field(
        False, description="whether dense and splade are one view each of the hybrid encoder, searched alone"
    )
    changes: dict[str, Any] = Field({}, description="dotted path -> value; stages.*.… stands for every stage")

    def on(self, recipe: Recipe, kind: Kind, scale: Literal["demo", "published"]) -> Recipe:
        """The recipe with this fine-tuning."""
        tuned = PROTOCOLS[self.protocols[kind]]().on(recipe, scale)
        searched = {"views": VIEWS[kind]} if self.by_view else {}
        evaluation = tuned.evaluation.model_copy(update=searched)
        return tuned.model_copy(update={"stages": tuned.stages[: self.stages], "evaluation": evaluation})


class Benchmark(Config):
    """Which systems are compared, and how. They share corpus, seeds and evaluation; only the system differs."""

    name: str = Field(description="of the preset")
    title: str = Field(description="one line for the head of the report")
    corpus: str = Field("pydocs", description="fine-tuned and evaluated on; as corpus.name")
    scale: Literal["demo", "published"] = Field("demo", description="of the protocols' sizes")
    systems: tuple[str, ...] = Field(
        min_length=1, description="recipes, bm25, or variants as recipe[field=value,…] of objective or backbone"
    )
    collections: dict[str, tuple[str, ...]] = Field(
        {"corpus": ()}, min_length=1, description="label -> what the middle training reads; empty: the corpus itself"
    )
    representations: tuple[Kind, ...] = Field(("dense",), min_length=1, description="what is scored")
    settings: dict[str, Setting] = Field(min_length=1, description="label -> fine-tuning")
    only: dict[str, tuple[str, ...]] = Field(
        {}, description="collection, representation or setting -> the systems that are run with it; others: all"
    )
    zero_shot: tuple[str, ...] = Field((), description="collections that are only searched, as --zero-shot")
    splits: tuple[str, ...] = Field(("dev", "test"), min_length=1, description="of the corpus, whose queries count")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="of the fine-tuning; they share middle trainings")
    measures: tuple[str, ...] = Field(("RR@10", "nDCG@10", "R@100"), min_length=1, description="or presets of them")
    measure: str = Field("RR@10", description="the one that conclusions are drawn from")
    baseline: str | None = Field(None, description="system that the report's sentence holds the best against")
    maps: tuple[str, ...] = Field((), description="systems whose dense vectors are mapped by t-SNE, with KL and JS")
    changes: dict[str, Any] = Field({}, description="dotted path -> value, for all systems; stages.*.… for every stage")
    own: dict[str, dict[str, Any]] = Field(
        {}, description="recipe or representation -> the same for it alone; a recipe's own come last"
    )
    notes: tuple[str, ...] = Field((), description="conditions that differ from the paper's, for captions")

    @model_validator(mode="after")
    def _names_are_known(self) -> "Benchmark":
        for system in self.systems:
            name, _ = variant(system)
            if name != BM25 and name not in set(RECIPES):
                raise unknown("system", name, [*RECIPES, BM25])
        labels = [*self.collections, *self.representations, *self.settings]
        if repeated := {label for label in labels if labels.count(label) > 1}:
            raise UserError(f"{', '.join(sorted(repeated))}: collections, representations and settings share one label")
        for label in self.only:
            if label not in (*labels, *VIEWS):
                raise unknown("condition", label, labels)
        for name in self.own:
            if name not in (*RECIPES, *VIEWS):
                raise unknown("recipe or representation", name, [*RECIPES, *VIEWS])
        return self

    def keys(self) -> Iterator[SystemKey]:
        """Every combination, whether it makes sense or not; bm25 and systems without middle training once each."""
        for name in self.systems:
            if name == BM25:
                yield SystemKey(BM25, NONE, BM25, NONE)
                continue
            trains = RECIPES[variant(name)[0]]().objective is not None
            collections = self.collections if trains else (NONE,)
            for collection, kind, setting in itertools.product(collections, self.representations, self.settings):
                yield SystemKey(name, collection, kind, setting)


@dataclass(frozen=True)
class Cell:
    """One system under one condition with one seed.

    evaluations: (short name of the corpus, split) -> step; the corpus's own splits come first, test last of them.
    """

    key: SystemKey
    seed: int
    recipe: Recipe
    evaluations: Mapping[tuple[str, str], Step]

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
        return f"{self.key.system}, {', '.join(part for part in conditions if part != NONE)}, seed {self.seed}"


@dataclass(frozen=True)
class LeftOut:
    """A combination that is not run."""

    key: SystemKey
    reason: str


@dataclass(frozen=True)
class Layout:
    """A benchmark laid out."""

    benchmark: Benchmark
    cells: tuple[Cell, ...]
    left_out: tuple[LeftOut, ...] = field(default=())

    def steps(self) -> dict[str, Step]:
        """Every step behind the cells by fingerprint, in an order in which they can be run."""
        found: dict[str, Step] = {}
        for cell in self.cells:
            for evaluation in cell.evaluations.values():
                for step in evaluation.upstream():
                    found.setdefault(step.fingerprint, step)
        return found


def variant(system: str) -> tuple[str, dict[str, str]]:
    """(recipe, field -> value) of `retromae[decoding=basic,decoder_layers=2]`.

    Raises:
        UserError: for a text of another form.
    """
    match = re.fullmatch(r"(\w+)(?:\[([^\[\]]+)\])?", system)
    pairs = [pair.partition("=") for pair in match[2].split(",")] if match and match[2] else []
    if match is None or not all(name and equals for name, equals, _ in pairs):
        raise UserError(f"system {system!r}: write a recipe's name, or recipe[field=value,field=value]")
    return match[1], {name: value for name, _, value in pairs}


def lay_out(benchmark: Benchmark) -> Layout:
    """The cells of a benchmark in the order of its systems, and what is left out of it.

    Raises:
        UserError: for an unknown field, a collection that is not there, or if nothing is left.
    """
    cells: list[Cell] = []
    left_out: list[LeftOut] = []
    owners: dict[str, SystemKey] = {}
    survey = Survey()
    for key in benchmark.keys():
        if reason := _senseless(benchmark, key):
            left_out.append(LeftOut(key, reason))
            continue
        recipe = recipe_of(benchmark, key)
        if reason := _impossible(recipe):
            left_out.append(LeftOut(key, reason))
            continue
        seeds = benchmark.seeds if key.system != BM25 else benchmark.seeds[:1]
        own = [_cell(benchmark, key, recipe.seeded(seed), seed, survey) for seed in seeds]
        owner = owners.setdefault(_identity(own[0]), key)
        if (owner.system, owner.collection) != (key.system, key.collection):
            left_out.append(LeftOut(key, f"the same experiment as {owner.system} ({owner.collection})"))
        else:
            cells += own
    if not cells:
        reasons = "; ".join(dict.fromkeys(one.reason for one in left_out))
        raise UserError(f"benchmark {benchmark.name}: nothing is left to run ({reasons})")
    return Layout(benchmark, tuple(cells), tuple(left_out))


def _senseless(benchmark: Benchmark, key: SystemKey) -> str | None:
    """Why a combination is not run; None if it is."""
    if key.system == BM25:
        return None
    name, _ = variant(key.system)
    for condition in (key.collection, key.representation, key.setting):
        if key.system not in (allowed := benchmark.only.get(condition, (key.system,))):
            return f"{benchmark.name} runs {condition} with {', '.join(allowed)} alone"
    if key.representation not in benchmark.settings[key.setting].protocols:
        return f"{key.setting} has no {key.representation} form"
    if key.representation != "dense" and name in HEADLESS:
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
    own = benchmark.own.get(key.representation, {}) | benchmark.own.get(name, {})
    changes = {**benchmark.changes, **own, **changes}
    changes |= {_path(base, field): value for field, value in fields.items()}
    changes |= {"corpus.name": benchmark.corpus, "evaluation.measures": list(benchmark.measures)}
    read = benchmark.collections.get(key.collection, ())
    return apply_changes(base, {**_spread(base, changes), "pretrain_on": list(read)})


def _path(recipe: Recipe, name: str) -> str:
    """The dotted path that a variant's field stands for."""
    known = flatten(recipe)
    found = [path for section in SECTIONS if (path := f"{section}.{name}") in known]
    if not found and name not in known:
        raise unknown(f"field of {recipe.name}", name, [path for path in known if path.startswith(SECTIONS)])
    return found[0] if found else name


def _spread(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes with `stages.*.…` written out for each stage; a teacher's, for each stage that has one."""
    found: dict[str, Any] = {}
    for path, value in changes.items():
        if not path.startswith("stages.*."):
            found[path] = value
            continue
        for number, stage in enumerate(recipe.stages):
            if stage.teacher is not None or not path.startswith("stages.*.teacher."):
                found[path.replace("*", str(number), 1)] = value
    return found


def _cell(benchmark: Benchmark, key: SystemKey, recipe: Recipe, seed: int, survey: Survey) -> Cell:
    planned = plan(recipe, survey)
    evaluate = planned.bm25_evaluation if key.system == BM25 else planned.evaluation
    evaluations: dict[tuple[str, str], Step] = {}
    for split in benchmark.splits:
        config = recipe.evaluation.model_copy(update={"split": split})
        evaluations[recipe.corpus.short_name, split] = evaluate(config)
    elsewhere = recipe.evaluation.model_copy(update={"split": SPLIT})
    for label, corpus in collections(benchmark.zero_shot).items():
        evaluations[label, SPLIT] = evaluate(elsewhere, on=planned.elsewhere(corpus))
    return Cell(key, seed, recipe, evaluations)


def _identity(cell: Cell) -> str:
    return " ".join(step.fingerprint for step in cell.evaluations.values())
