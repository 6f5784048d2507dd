"""Plain masked language modelling on the target corpus: "BERT-MS" in Lassance et al. (SIGIR 2023)."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.mlm import MLM
from midmask.recipes.none import none


def mlm() -> Recipe:
    """Token-level masks of 15%, 80/10/10, one passage a row."""
    return none().model_copy(update={"name": "mlm", "objective": MLM.Config()})
