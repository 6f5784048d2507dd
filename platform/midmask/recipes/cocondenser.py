"""coCondenser (Gao & Callan, ACL 2022): Condenser on spans of documents, which must find their partner in the batch."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.cocondenser import CoCondenser
from midmask.recipes.none import none


def cocondenser() -> Recipe:
    """Condenser's settings on pairs of spans, temperature 1. Published runs start from Condenser, its head included."""
    return none().model_copy(update={"name": "cocondenser", "objective": CoCondenser.Config()})
