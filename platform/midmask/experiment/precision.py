"""Settles what `precision = auto` means on this machine, once for all recipes of a job."""

from midmask.encoders.backbone import shape_of
from midmask.encoders.precision import Precision, processor_precision
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey
from midmask.identity import flatten, override


def find_precision(recipe: Recipe, survey: Survey) -> Precision:
    """What `auto` stands for with the recipe's backbone: bf16, or still auto, which the device decides."""
    try:
        width = shape_of(recipe.backbone).width
    except UserError:  # a backbone that is not there is refused by `Recipe.check`
        return "auto"
    settled: Precision = survey.find(processor_precision, width)["precision"]
    return settled


def settle_precision(recipe: Recipe, precision: Precision) -> Recipe:
    """The recipe with this in place of every `auto`, but for teachers, whose encoders are others."""
    if precision == "auto":
        return recipe
    fields = [path for path, value in flatten(recipe).items() if path.endswith(".precision") and value == "auto"]
    return override(recipe, {path: precision for path in fields if ".teacher." not in path})
