"""DupMAE, or RetroMAE v2 (Xiao et al., ACL 2023): RetroMAE, and a bag of words from the ordinary tokens."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.dupmae import DupMAE
from midmask.recipes.none import none
from midmask.recipes.protocols.dupmae import dupmae as protocol


def dupmae() -> Recipe:
    """Encoder ratio 0.3, enhanced decoding with ratio 0.5, the bag of words with weight 1; [CLS] and ordinary tokens in
    three stages."""
    base = none().model_copy(update={"name": "dupmae", "objective": DupMAE.Config()})
    return protocol().on(base, "demo")
