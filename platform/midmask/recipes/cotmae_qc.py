"""Query as context (EMNLP 2023): a passage's vector writes a pseudo-query for it."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.cotmae_qc import QueryAsContext
from midmask.recipes.none import none


def cotmae_qc() -> Recipe:
    """Encoder mask of 30%, one causal block with a window of three tokens."""
    return none().model_copy(update={"name": "cotmae_qc", "objective": QueryAsContext.Config()})
