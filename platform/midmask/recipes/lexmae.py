"""LexMAE (Shen et al., ICLR 2023): a masked encoder, and a decoder that is fed a mixture of word embeddings."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.lexmae import LexMAE
from midmask.recipes.none import none
from midmask.recipes.protocols.lexmae import lexmae as protocol


def lexmae() -> Recipe:
    """Encoder ratio 0.3, decoder ratio 0.5 with a mask that holds the encoder's, two layers; SPLADE in three stages."""
    base = none().model_copy(update={"name": "lexmae", "objective": LexMAE.Config()})
    return protocol().on(base, "demo")
