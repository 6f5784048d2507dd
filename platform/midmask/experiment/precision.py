"""Settles what `precision = auto` means on this machine, once for all recipes of a job."""

from collections.abc import Mapping

from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.precision import Precision, processor_precision
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.identity import flatten, override


def find_precision(backbone: BackboneConfig) -> Mapping[str, Precision]:
    """What `auto` stands for with a backbone, as {"precision": …}: bf16, or still auto, which the device decides."""
    try:
        return processor_precision(shape_of(backbone).width)
    except UserError:  # a backbone that is not there is refused by `Recipe.check`
        return {"precision": "auto"}


def settle_precision(recipe: Recipe, precision: Precision) -> Recipe:
    """The recipe with this in place of every `auto`, but for teachers, whose encoders are others."""
    if precision == "auto":
        return recipe
    fields = [path for path, value in flatten(recipe).items() if path.endswith(".precision") and value == "auto"]
    return override(recipe, {path: precision for path in fields if ".teacher." not in path})
