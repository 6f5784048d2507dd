"""A benchmark as data: systems, conditions and seeds."""

import itertools
import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from midmask.benchmark.results import SystemKey
from midmask.core.config import Config
from midmask.errors import UserError, unknown
from midmask.experiment.schema import Recipe
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.retrieve.bm25 import BM25

RepresentationKind = Literal["dense", "splade", "lexical", "hybrid", "late"]
"""What is scored: a dense vector, SPLADE's words, the words of DupMAE's ordinary tokens, both kinds together, or a
vector for each token.
"""

VIEW_NAMES = {"dense": "dense", "splade": "SPLADE", "hybrid": "hybrid", "lexical": "lexical"}
"""Representation -> its name in headings."""

VIEWS = {"dense": "dense", "splade": "lexical", "lexical": "lexical", "hybrid": "all", "late": "all"}

IN_BATCH: dict[RepresentationKind, str] = {
    "dense": "in_batch",
    "splade": "in_batch_splade",
    "hybrid": "in_batch_hybrid",
    "late": "in_batch_late",
}
"""Representation -> protocol of one stage with in-batch negatives."""

BM25_SHARE = 0.5
"""BM25's share in a system that joins its list with an encoder's: both count alike."""

NONE = "none"


class Setting(Config):
    """A fine-tuning that all systems go through."""

    protocols: dict[RepresentationKind, str] = Field(
        min_length=1, description="representation -> protocol, as in their table"
    )
    stages: int | None = Field(
        None, ge=0, description="only the protocol's first stages; 0: no fine-tuning at all; none: all"
    )
    by_view: bool = Field(
        False, description="whether dense and splade are one view each of the hybrid encoder, searched alone"
    )
    changes: dict[str, Any] = Field({}, description="dotted path -> value; stages.*.… stands for every stage")

    def on(self, recipe: Recipe, kind: RepresentationKind, scale: Literal["demo", "published"]) -> Recipe:
        """The recipe with this fine-tuning."""
        tuned = PROTOCOLS[self.protocols[kind]]().on(recipe, scale)
        searched = {"views": VIEWS[kind]} if self.by_view else {}
        evaluation = tuned.evaluation.model_copy(update=searched)
        return tuned.model_copy(update={"stages": tuned.stages[: self.stages or None], "evaluation": evaluation})


class Benchmark(Config):
    """Which systems are compared, and how. They share corpus, seeds and evaluation; only the system differs."""

    name: str = Field(description="of the preset")
    title: str = Field(description="one line for the head of the report")
    corpus: str = Field("pydocs", description="fine-tuned and evaluated on; as corpus.name")
    scale: Literal["demo", "published"] = Field("demo", description="of the protocols' sizes")
    systems: tuple[str, ...] = Field(
        min_length=1,
        description="recipes, bm25, or variants as recipe[field=value,…] of objective or backbone; a published model "
        "folder is none[backbone.name=FOLDER,tokens.tokenizer=FOLDER]",
    )
    collections: dict[str, tuple[str, ...]] = Field(
        {"corpus": ()}, min_length=1, description="label -> what the middle training reads; empty: the corpus itself"
    )
    representations: tuple[RepresentationKind, ...] = Field(("dense",), min_length=1, description="what is scored")
    settings: dict[str, Setting] = Field(min_length=1, description="label -> fine-tuning")
    only: dict[str, tuple[str, ...]] = Field(
        {}, description="collection, representation or setting -> the systems that are run with it; others: all"
    )
    zero_shot: tuple[str, ...] = Field(
        (), description="collections that are only searched, as --zero-shot, by systems that are fine-tuned on corpus"
    )
    splits: tuple[str, ...] = Field(("dev", "test"), min_length=1, description="of the corpus, whose queries count")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="of the fine-tuning")
    pretrain_seeds: tuple[int, ...] = Field(
        (),
        description="of the middle training, each with fine-tunings of its own, as many as there are seeds; empty: one "
        "middle training, which all seeds share",
    )
    measures: tuple[str, ...] = Field(("RR@10", "nDCG@10", "R@100"), min_length=1, description="or presets of them")
    measure: str = Field("RR@10", description="the one that conclusions are drawn from")
    baseline: str | None = Field(None, description="system that the report's sentence holds the best against")
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

    @model_validator(mode="after")
    def _no_seed_is_repeated(self) -> "Benchmark":
        for name, seeds in (("seeds", self.seeds), ("pretrain_seeds", self.pretrain_seeds)):
            if len(set(seeds)) < len(seeds):
                raise UserError(
                    f"{name} {', '.join(map(str, seeds))}: a seed is named twice; each stands for one training"
                )
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


def variant(system: str) -> tuple[str, dict[str, str]]:
    """(recipe, field -> value) of `retromae[decoding=basic,decoder_layers=2]`.

    Raises:
        UserError: for a text of another form.
    """
    match = re.fullmatch(r"(\w+)(?:\[([^\[\]]+)\])?", system)
    pairs = [pair.partition("=") for pair in match[2].split(",")] if match and match[2] else []
    if match is None or not all(name and equals for name, equals, _ in pairs):
        raise UserError(f"system {system!r}: write a recipe's name or recipe[field=value,field=value]")
    return match[1], {name: value for name, _, value in pairs}


def names_in(text: str) -> list[str]:
    """Names divided by commas; a comma within brackets belongs to a variant's fields."""
    return [name.strip() for name in re.split(r",(?![^\[]*\])", text) if name.strip()]
