"""CoT-MAE (AAAI 2023): spans of one document rebuild each other."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.cotmae import CoTMAE
from midmask.recipes.none import none


def cotmae() -> Recipe:
    """Two spans of a document, encoder mask of 30%, decoder mask of 45%, two decoder layers."""
    return none().model_copy(update={"name": "cotmae", "objective": CoTMAE.Config()})
