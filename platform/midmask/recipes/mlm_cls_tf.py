"""MLM and term frequencies from [CLS]: "BERT-MS-CLS" in Lassance et al. (SIGIR 2023)."""

from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.mlm_cls_tf import MLMTermFrequency
from midmask.recipes.none import none


def mlm_cls_tf() -> Recipe:
    """Token-level masks of 15%, 80/10/10; squared error, summed over the vocabulary, by the MLM head."""
    return none().model_copy(update={"name": "mlm_cls_tf", "objective": MLMTermFrequency.Config()})
