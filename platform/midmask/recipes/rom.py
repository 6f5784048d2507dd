"""Retrieval-oriented masking (ROM, Long et al. 2022)."""

from midmask.derived.terms import WeighConfig
from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.rom import ROM
from midmask.recipes.none import none


def rom() -> Recipe:
    """15% of the tokens, preferring words of high idf in the corpus; plain masked language modelling otherwise."""
    weights = WeighConfig(source="idf", scaling="passage")
    return none().model_copy(update={"name": "rom", "objective": ROM.Config(), "weights": weights})
