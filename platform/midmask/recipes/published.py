"""Published sizes of middle trainings on MS MARCO, and of the parts that all systems share, and the fields in which a
recipe differs from them. Those of fine-tuning are in `recipes.protocols`.
"""

from collections.abc import Mapping
from typing import Any

from midmask.experiment.backbone_defaults import apply_changes
from midmask.experiment.every_stage import for_each_stage
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override
from midmask.recipes import RECIPES
from midmask.recipes.methods import METHODS
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.protocols.protocol import Scale

SHARED: dict[str, Any] = {
    "backbone.name": "bert-base-uncased",
    "backbone.dropout": 0.1,
    "tokens.tokenizer": "bert-base-uncased",
    "spans.span_length": 128,
    "evaluation.depth": 1000,
}
"""BERT-base and its vocabulary, and ranked lists of 1,000. The teacher, one for all, is trained from BERT-base too."""


MIDDLE_TRAININGS = {name: dict(method.published) for name, method in METHODS.items() if method.published}
"""Recipe -> sizes of its middle training, where they are published."""

SIZES_OF = ("backbone.", "tokens.", "spans.", "pretrain.", "stages.")
"""Sections of a recipe whose fields belong to a scale, but for seeds."""


def at_scale(recipe: Recipe, protocol: str, scale: Scale) -> Recipe:
    """The recipe with a protocol's fine-tuning; at the published scale, with a published backbone and middle training
    too.

    Raises:
        UserError: for an unknown protocol.
    """
    tuned = PROTOCOLS[protocol]().on(recipe, scale)
    if scale == "demo":
        return tuned
    return apply_changes(tuned, {**SHARED, **MIDDLE_TRAININGS.get(recipe.name, {})})


def with_changes(recipe: Recipe, changes: Mapping[str, Any], scale: Scale) -> Recipe:
    """The recipe with some fields set. At the published scale no other field follows a backbone that is set, so that
    published rates stay.

    Raises:
        UserError: for an unknown path or an impossible value.
    """
    if scale == "published":
        return override(recipe, for_each_stage(recipe, changes))
    return apply_changes(recipe, changes)


def has_sizes(name: str) -> bool:
    """Whether the sizes of a recipe's middle training are known, or it has none."""
    return name in MIDDLE_TRAININGS or METHODS[name].objective is None


def list_unpublished(recipe: Recipe) -> list[str]:
    """What of a recipe that was asked for at the published scale is not as published, a sentence each."""
    found = []
    wanted, own = flatten(at_scale(RECIPES[recipe.name](), recipe.protocol, "published")), flatten(recipe)
    for path, value in own.items():
        differs = path in wanted and wanted[path] != value
        if differs and path.startswith(SIZES_OF) and not path.endswith("seed"):
            found.append(f"{path} = {value}, published: {wanted[path]}")
    if not has_sizes(recipe.name):
        found.append(f"pretrain.*: no sizes of {recipe.name} are known, so steps and batches are those of a demo")
    if recipe.corpus.format != "msmarco":
        found.append(f"corpus.name = {recipe.corpus.name}: steps are epochs over MS MARCO")
    return found
