"""CoT-MAE v2 (2023): a dense and a sparse view, read by two decoders."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.cotmae_v2 import CoTMAEv2
from midmask.recipes.none import none


def cotmae_v2() -> Recipe:
    """Its paper gives no hyper-parameters; spans as in the first version."""
    return none().model_copy(update={"name": "cotmae_v2", "objective": CoTMAEv2.Config()})
