"""Settles what `precision = auto` means on this machine, once for all recipes of a job."""

from midmask.encoders.backbone import shape_of
from midmask.encoders.precision import processor_precision
from midmask.errors import UserError
from midmask.experiment.schema import Recipe
from midmask.experiment.survey import Survey
from midmask.identity import flatten, override


def settle_precision(recipe: Recipe, survey: Survey) -> Recipe:
    """The recipe with bf16 in place of `auto` in trainings, mining and evaluation, where the processor gains by it.
    Teachers, whose encoders are others, are left out.
    """
    try:
        width = shape_of(recipe.backbone).width
    except UserError:  # a backbone that is not there is refused by `Recipe.check`
        return recipe
    settled = survey.find(processor_precision, width)["precision"]
    if settled == "auto":
        return recipe
    fields = [path for path, value in flatten(recipe).items() if path.endswith(".precision") and value == "auto"]
    return override(recipe, {path: settled for path in fields if ".teacher." not in path})
