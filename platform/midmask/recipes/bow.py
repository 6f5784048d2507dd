"""Bag-of-words prediction ("Drop your decoder", Ma et al., SIGIR 2024): [CLS] names the words of the text."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.bow import BOW
from midmask.recipes.none import none


def bow() -> Recipe:
    """Encoder ratio 0.3; the bag's weight falls from 1 to 0.1 over the whole run."""
    return none().model_copy(update={"name": "bow", "objective": BOW.Config()})
