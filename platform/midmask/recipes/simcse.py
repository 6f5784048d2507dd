"""Unsupervised SimCSE (Gao, Yao & Chen, EMNLP 2021): self-contrast by dropout alone, as a control."""

from midmask.encoders.backbone import BackboneConfig
from midmask.experiment.schema import Recipe
from midmask.objectives.pretraining.simcse import SimCSE
from midmask.recipes.none import none


def simcse() -> Recipe:
    """Temperature 0.05, no MLM, and the dropout of 0.1 that the method lives on, in fine-tuning too.

    The larger `pretrain.batch_size`, the more negatives; `pretrain.micro_batch` keeps memory down.
    """
    base = none()
    backbone = BackboneConfig(name=base.backbone.name, dropout=0.1)
    return base.model_copy(update={"name": "simcse", "backbone": backbone, "objective": SimCSE.Config()})
