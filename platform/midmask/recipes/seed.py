"""SEED-Encoder (EMNLP 2021): a weak decoder writes the text from the sentence vector."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.seed import SEED
from midmask.recipes.none import none


def seed() -> Recipe:
    """Encoder mask of 15%, three causal layers with a window of two tokens."""
    return none().model_copy(update={"name": "seed", "objective": SEED.Config()})
