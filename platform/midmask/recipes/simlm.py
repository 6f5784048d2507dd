"""SimLM (ACL 2023): undo what a generator has put into the text."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.simlm import SimLM
from midmask.recipes.none import none


def simlm() -> Recipe:
    """30% replaced for the encoder, half for the decoder; a small generator of its own, for want of ELECTRA."""
    return none().model_copy(update={"name": "simlm", "objective": SimLM.Config()})
