"""RetroMAE (Xiao et al., EMNLP 2022): a masked encoder, and a one-layer decoder that must rebuild the text from its
[CLS].
"""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.retromae import RetroMAE
from midmask.recipes.none import none


def retromae() -> Recipe:
    """Encoder ratio 0.3, enhanced decoding with ratio 0.5, the paper's query stream."""
    return none().model_copy(update={"name": "retromae", "objective": RetroMAE.Config()})
