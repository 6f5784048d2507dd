"""The inverse cloze task (Lee, Chang & Toutanova, ACL 2019): a run of words must find the passage it was taken from."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.ict import ICT
from midmask.recipes.none import none


def ict() -> Recipe:
    """A run of 5 to 50% of the words, cut from nine passages of ten; dot product. Crops: objective.views=crops.

    The larger `pretrain.batch_size`, the more negatives; `pretrain.micro_batch` keeps memory down.
    """
    return none().model_copy(update={"name": "ict", "objective": ICT.Config()})
