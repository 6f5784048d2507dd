"""Condenser (Gao & Callan, EMNLP 2021): MLM through a head that sees early token states and the late [CLS]."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.condenser import Condenser
from midmask.recipes.none import none


def condenser() -> Recipe:
    """Encoder ratio 0.15, two head layers, token states of half the layers, both MLM losses."""
    return none().model_copy(update={"name": "condenser", "objective": Condenser.Config()})
