"""Whole experiments by name: `RECIPES["retromae"]()` is the full config of a system of the literature.

The table is in `methods`. Importing this package imports no torch; making a config does.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from midmask.core.registry import Registry
from midmask.recipes.methods import METHODS

if TYPE_CHECKING:
    from midmask.experiment.schema import Recipe


def _recipe(name: str) -> "Recipe":
    from midmask.recipes.build import build  # here, for the sake of torch

    return build(name, METHODS[name])


RECIPES: "Registry[Callable[[], Recipe]]" = Registry("recipe", {name: partial(_recipe, name) for name in METHODS})
