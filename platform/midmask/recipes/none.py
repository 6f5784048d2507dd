"""No middle training: the floor that every method is held against. A named size starts from random weights."""

from midmask.derived.spans import SpansConfig
from midmask.encoders.backbone import BackboneConfig
from midmask.experiment.schema import Recipe, StageConfig
from midmask.tokens import TokensConfig
from midmask.training.optimiser import TrainConfig


def none() -> Recipe:
    """Fine-tuning alone: a dense [CLS] bi-encoder with in-batch negatives.

    The numbers are for a tiny model on two CPU cores, minutes long; published protocols are other recipes. No dropout:
    with 0.1, so small a model does not learn to rank at all within so few steps. Spans, for methods that read them, are
    as long as passages.
    """
    return Recipe(
        name="none",
        tokens=TokensConfig(vocabulary_size=2048, max_length=48, query_length=24),
        spans=SpansConfig(span_length=48),
        backbone=BackboneConfig(name="tiny", dropout=0.0),
        objective=None,
        pretrain=TrainConfig(steps=800, batch_size=32, learning_rate=1e-3, warmup=0.1, decay=0.2),
        stages=(StageConfig(train=TrainConfig(steps=150, batch_size=32, learning_rate=1e-3, warmup=0.1, decay=0.9)),),
    )
