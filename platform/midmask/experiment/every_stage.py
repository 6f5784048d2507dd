"""Changes of a recipe in which `stages.*.…` stands for every stage of its fine-tuning."""

from collections.abc import Mapping
from typing import Any

from midmask.errors import UserError
from midmask.experiment.schema import Recipe

EVERY = "stages.*."


def for_each_stage(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes, written out for each stage; those of a teacher's fields, for each stage that has one. A recipe may
    have no such stage: one change may be of many recipes.
    """
    found: dict[str, Any] = {}
    for path, value in changes.items():
        if not path.startswith(EVERY):
            found[path] = value
            continue
        for number, stage in enumerate(recipe.stages):
            if stage.teacher is not None or not path.startswith(f"{EVERY}teacher."):
                found[path.replace("*", str(number), 1)] = value
    return found


def refuse_idle(recipe: Recipe, changes: Mapping[str, Any]) -> None:
    """For changes that were asked of this recipe alone.

    Raises:
        UserError: for one that no stage of the recipe has a place for.
    """
    for path, value in changes.items():
        if path.startswith(EVERY) and not for_each_stage(recipe, {path: value}):
            lacking = "has a teacher" if recipe.stages else "is there"
            raise UserError(f"{path} = {value}: no stage of {recipe.name} {lacking}; leave it out")
