"""A recipe's fields as the params of a tracked run."""

import json

from midmask.experiment.schema import Recipe
from midmask.identity import flatten


def params_of(recipe: Recipe) -> dict[str, str]:
    return {path: value if isinstance(value, str) else json.dumps(value) for path, value in flatten(recipe).items()}
