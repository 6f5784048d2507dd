"""SimLM (ACL 2023): undo what a generator has put into the text."""

from midmask.objectives.simlm import SimLM
from midmask.recipes.none import none
from midmask.recipes.schema import Recipe


def simlm() -> Recipe:
    """30% replaced for the encoder, half for the decoder; a small generator of its own, for want of ELECTRA."""
    return none().model_copy(update={"name": "simlm", "objective": SimLM.Config()})
