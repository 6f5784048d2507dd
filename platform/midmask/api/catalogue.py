"""The names that `train` takes, and the fields that its `settings` may set."""

from collections.abc import Mapping
from typing import Any

from midmask.errors import unknown
from midmask.experiment.every_stage import for_each_stage, refuse_idle
from midmask.experiment.schema import Recipe
from midmask.identity import flatten
from midmask.recipes import RECIPES
from midmask.recipes.protocols import PROTOCOLS
from midmask.recipes.published import at_scale


def list_recipes() -> list[str]:
    """Names of the recipes: each is a middle training (or none) with a fine-tuning."""
    return list(RECIPES)


def list_protocols() -> list[str]:
    """Names of the fine-tuning protocols, each of which can be put on any recipe."""
    return list(PROTOCOLS)


def settings(recipe: str, *, protocol: str | None = None) -> dict[str, Any]:
    """Every field of a recipe, as dotted path -> value: what `train(…, settings={path: value})` can change.

    Raises:
        UserError: for an unknown recipe or protocol.
    """
    return flatten(recipe_named(recipe, protocol))


def recipe_named(name: str, protocol: str | None) -> Recipe:
    """The recipe, with another protocol's fine-tuning if one is named.

    Raises:
        UserError: for an unknown name, with the nearest one.
    """
    recipe = RECIPES[name]()
    return recipe if protocol is None else at_scale(recipe, protocol, "demo")


def check_paths(recipe: Recipe, changes: Mapping[str, object]) -> None:
    """
    Raises:
        UserError: for a path that is no field of the recipe, with the nearest one.
    """
    refuse_idle(recipe, changes)
    known = flatten(recipe)
    for path in for_each_stage(recipe, changes):
        if path not in known and not any(name.startswith(f"{path}.") for name in known):
            raise unknown("setting", path, known, hint=f"midmask.settings({recipe.name!r}) lists them all.")
