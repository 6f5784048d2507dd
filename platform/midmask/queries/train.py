"""The generator step: an encoder-decoder that learns to write the queries of a labelled collection from their passages.

Its folder is what the source `model:FOLDER` reads. Loop, checkpoints and the twin on Ray Train are those of
fine-tuning, and so are the rows: a query of the split train with one of its relevant passages.
"""

from collections.abc import Mapping

from pydantic import Field

from midmask.artifact import Artifact
from midmask.encoders.backbone import BackboneConfig
from midmask.identity import Config
from midmask.objectives.finetuning.generation import QueryGeneration
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.setup import GeneratorSetup


class GeneratorConfig(Config):
    """Training of a generator of queries."""

    backbone: BackboneConfig = Field(description="the encoder that it starts from")
    loss: QueryGeneration.Config = Field(
        default_factory=QueryGeneration.Config, description="the loss, and the decoder's depth"
    )
    train: TrainConfig = Field(description="length, batch (queries, each with a passage) and optimiser")
    query_length: int = Field(32, ge=4, description="tokens of a query")
    passage_length: int = Field(128, ge=8, le=512, description="tokens of a passage")


def generator_setup(config: GeneratorConfig, inputs: Mapping[str, Artifact]) -> GeneratorSetup:
    """The setup of a worker that trains a generator. Inputs: tokens, corpus."""
    rows = PairExamples(
        tokens=inputs["tokens"].place,
        corpus=inputs["corpus"].place,
        split="train",
        fingerprint=inputs["tokens"].fingerprint,
        query_length=config.query_length,
        passage_length=config.passage_length,
    )
    return GeneratorSetup(
        objective=config.loss, train=config.train, backbone=config.backbone, tokens=rows.tokens, rows=rows
    )
