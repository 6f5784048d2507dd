"""No middle training: the floor that every method is held against. A named size starts from random weights."""

from midmask.recipes.schema import Recipe, StageConfig
from midmask.train.optimiser import TrainConfig


def none() -> Recipe:
    """Fine-tuning alone: a dense [CLS] bi-encoder with in-batch negatives.

    The numbers are for the embedded corpus on two CPU cores; the published protocols are other recipes.
    """
    return Recipe(
        name="none",
        objective=None,
        pretrain=TrainConfig(steps=400, batch_size=32, learning_rate=1e-3, warmup=0.1, decay=0.2),
        stages=(StageConfig(train=TrainConfig(steps=150, batch_size=32, learning_rate=5e-4, warmup=0.1, decay=0.9)),),
    )
