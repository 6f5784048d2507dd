"""Makes the config of a method from its line in the table."""

from typing import Any

from midmask.experiment.schema import Recipe, recipe_from
from midmask.recipes.methods import BASE, Method
from midmask.recipes.protocols import PROTOCOLS


def build(name: str, method: Method) -> Recipe:
    """The method's recipe on the base's sizes.

    Raises:
        UserError: for a line of the table with an unknown field or an impossible value.
    """
    changes: dict[str, Any] = {"name": name, **method.changes}
    if method.objective is not None:
        changes["objective"] = {"name": method.objective, **method.settings}
    recipe = recipe_from({**BASE, **{section: _merge(section, own) for section, own in changes.items()}})
    return PROTOCOLS[method.protocol]().on(recipe, "demo") if method.protocol else recipe


def _merge(section: str, own: Any) -> Any:
    """Fields of a section over those of the base; a value that is no section takes the base's place."""
    base = BASE.get(section)
    return {**base, **own} if isinstance(base, dict) and isinstance(own, dict) else own
