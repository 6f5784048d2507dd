"""Makes the config of a method from its line in the table, and sets recipes to their published sizes.

Published sizes of middle trainings on MS MARCO are in `methods`, those of the parts that all systems share are here,
and those of fine-tuning are in `protocols`.
"""

from typing import Any

from midmask.core.config import flatten
from midmask.experiment.changes import apply_changes
from midmask.experiment.schema import Recipe, recipe_from
from midmask.recipes import RECIPES
from midmask.recipes.methods import BASE, METHODS, Method
from midmask.recipes.protocol_configs import Scale
from midmask.recipes.protocols import PROTOCOLS


def build(name: str, method: Method) -> Recipe:
    """The method's recipe on the base's sizes.

    Raises:
        UserError: for a line of the table with an unknown field or an impossible value.
    """
    changes: dict[str, Any] = {"name": name, **method.changes}
    if method.objective is not None:
        changes["objective"] = {"name": method.objective, **method.settings}
    recipe = recipe_from({**BASE, **{section: _merge(section, fields) for section, fields in changes.items()}})
    return PROTOCOLS[method.protocol]().on(recipe, "demo") if method.protocol else recipe


def _merge(section: str, value: Any) -> Any:
    """Fields of a section over those of the base; a value that is no section takes the base's place."""
    base = BASE.get(section)
    return {**base, **value} if isinstance(base, dict) and isinstance(value, dict) else value


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


def has_sizes(name: str) -> bool:
    """Whether the sizes of a recipe's middle training are known, or it has none."""
    return name in MIDDLE_TRAININGS or METHODS[name].objective is None


def list_unpublished(recipe: Recipe) -> list[str]:
    """Sentences on where a recipe at the published scale differs from the published settings."""
    sentences = []
    published, settings = flatten(at_scale(RECIPES[recipe.name](), recipe.protocol, "published")), flatten(recipe)
    for path, value in settings.items():
        differs = path in published and published[path] != value
        if differs and path.startswith(SIZES_OF) and not path.endswith("seed"):
            sentences.append(f"{path} = {value}, published: {published[path]}")
    if not has_sizes(recipe.name):
        sentences.append(f"pretrain.*: no sizes of {recipe.name} are known, so steps and batches are those of a demo")
    if recipe.corpus.format != "msmarco":
        sentences.append(f"corpus.name = {recipe.corpus.name}: steps are epochs over MS MARCO")
    return sentences
