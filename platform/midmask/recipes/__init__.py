"""Whole experiments, one file per system of the literature, and the table of them.

A recipe is a function without arguments that returns a full config; a variant changes fields of another.
"""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from midmask.identity import as_user_error
from midmask.recipes.cotmae import cotmae
from midmask.recipes.cotmae_qc import cotmae_qc
from midmask.recipes.cotmae_v2 import cotmae_v2
from midmask.recipes.mlm import mlm
from midmask.recipes.none import none
from midmask.recipes.retromae import retromae
from midmask.recipes.retromae_ance import retromae_ance
from midmask.recipes.rom import rom
from midmask.recipes.schema import Recipe
from midmask.recipes.seed import seed
from midmask.registry import Registry

RECIPES: Registry[Callable[[], Recipe]] = Registry(
    "recipe",
    {
        "none": none,
        "mlm": mlm,
        "retromae": retromae,
        "rom": rom,
        "cotmae": cotmae,
        "cotmae_qc": cotmae_qc,
        "cotmae_v2": cotmae_v2,
        "seed": seed,
        "retromae_ance": retromae_ance,
    },
)


def recipe_from(data: dict[str, Any]) -> Recipe:
    """A recipe from plain data, validated.

    Raises:
        UserError: naming the first wrong field.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, "") from None
