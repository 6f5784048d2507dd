"""No training before fine-tuning at all: random weights in the backbone's shape, the lower of the two floors."""

from midmask.experiment.schema import Recipe
from midmask.identity import override
from midmask.recipes.none import none


def scratch() -> Recipe:
    """`none` with `backbone.fresh`: of a folder or hub id (`--set backbone.name=…`) only the shape is taken.

    The named sizes have random weights in any case: with the default backbone, this gives what `none` gives.
    """
    return override(none(), {"name": "scratch", "backbone.fresh": True})
