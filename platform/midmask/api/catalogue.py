"""The names that `train` takes, and the fields that its `settings` may set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midmask.corpora import CorpusConfig
from midmask.errors import UserError, unknown
from midmask.experiment.every_stage import for_each_stage, refuse_idle
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override
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


def as_changes(settings: Mapping[str, object] | None) -> dict[str, object]:
    """Settings as given to a function of this API, with paths as texts."""
    return {path: str(value) if isinstance(value, Path) else value for path, value in (settings or {}).items()}


def read_as(corpus: CorpusConfig, changes: Mapping[str, object]) -> CorpusConfig:
    """The collection with those of the changes that are of `corpus`.

    Raises:
        UserError: for an unknown field, with the nearest one, or an impossible value.
    """
    reading = {path: value for path, value in changes.items() if path.partition(".")[0] == "corpus"}
    return override(override(RECIPES["none"](), {"corpus": corpus.model_dump()}), reading).corpus


def check_reach(changes: Mapping[str, object], reached: Sequence[str], of: str) -> None:
    """
    Args:
        reached: fields and sections that can be set. of: what they are set of, for the message.

    Raises:
        UserError: for a path of a recipe that changes nothing there, or that no recipe has, with the nearest one.
    """
    check_paths(RECIPES["none"](), changes)
    for path in changes:
        if not any(f"{path}.".startswith(f"{section}.") for section in reached):
            raise UserError(
                f"{path}: it changes nothing about {of}, only {', '.join(reached)} do; give it to the training (in "
                "Python: midmask.train), or leave it out"
            )


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
