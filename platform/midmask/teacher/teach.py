"""The teaching step: a cross-encoder trained on lists of a positive and hard negatives; its scores then teach.

The loop, its checkpoints and its twin on Ray Train are those of fine-tuning, and so are the lists: a query of the split
with one of its positives, and `per_query` of its negatives, drawn anew at every visit.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import BackboneConfig
from midmask.identity import Config
from midmask.objectives.cross_encoder import ListwiseRanking
from midmask.teacher.score import ScoreConfig
from midmask.teacher.scorer import PASSAGE_ROOM
from midmask.train.optimiser import TrainConfig
from midmask.train.run import TrainingSetup, local_reader, run_training


class TeachConfig(Config):
    """Training of a cross-encoder."""

    backbone: BackboneConfig = Field(description="the encoder, if it does not come from another step")
    loss: ListwiseRanking.Config = Field(description="the ranking loss, and how long a pair is")
    train: TrainConfig = Field(description="length, batch (queries, each with its list) and optimiser")
    per_query: int = Field(ge=1, le=1000, description="negatives of a list")
    query_length: int = Field(32, ge=4, description="tokens of a query")

    @model_validator(mode="after")
    def _a_passage_fits(self) -> Self:
        if self.loss.max_length < self.query_length + PASSAGE_ROOM:
            raise ValueError(
                f"loss.max_length = {self.loss.max_length} with query_length = {self.query_length}: a pair needs at "
                f"least {PASSAGE_ROOM} tokens more than its query"
            )
        return self


class TeacherConfig(Config):
    """The teacher of a fine-tuning stage: trained here on the stage's negatives, a folder from elsewhere, or a file of
    its scores.
    """

    folder: str | None = Field(
        None, description="Hugging Face sequence-classification folder, taken as it is; none: a teacher is trained"
    )
    scores: str | None = Field(
        None,
        description="file of its scores, in place of a teacher: list layout (.parquet) or scores[query][passage] "
        "(.pkl, .pkl.gz)",
    )
    backbone: BackboneConfig | None = Field(
        None, description="what is trained; none: the recipe's encoder after its middle training"
    )
    loss: ListwiseRanking.Config = Field(
        default_factory=ListwiseRanking.Config, description="the ranking loss, and how long a pair is"
    )
    train: TrainConfig | None = Field(None, description="length, batch and optimiser; only if it is trained here")
    per_query: int = Field(15, ge=1, le=1000, description="negatives of a list in training")
    titles: bool | None = Field(None, description="whether it reads 'title text'; none: as the corpus is tokenised")
    jsonl: bool = Field(False, description="also write the scores as scores.jsonl.gz")

    @model_validator(mode="after")
    def _trained_or_given(self) -> Self:
        if self.folder is None and self.scores is None and self.train is None:
            raise ValueError("a teacher is a folder or is trained; set folder, or train (or scores, a file)")
        if self.folder is not None and self.scores is not None:
            raise ValueError("folder and scores are two teachers; set one of them")
        return self

    @property
    def comes_from_elsewhere(self) -> bool:
        """Whether it is there before the stage's negatives are."""
        return self.folder is not None or self.scores is not None

    def teaching(self, backbone: BackboneConfig, *, query_length: int) -> TeachConfig:
        """The step that trains it on `backbone`, if it is not a folder; `self.backbone` is the caller's to look at."""
        if self.train is None:
            raise ValueError("a teacher from a folder is not trained")
        return TeachConfig(
            backbone=backbone, loss=self.loss, train=self.train, per_query=self.per_query, query_length=query_length
        )

    def scoring(self, split: str, *, titles: bool, query_length: int, passage_length: int | None = None) -> ScoreConfig:
        """The step that scores a split's lists; titles, passage_length: of the corpus as it is tokenised.

        A teacher that was trained here reads passages as far as it did in training.
        """
        return ScoreConfig(
            split=split,
            titles=titles if self.titles is None else self.titles,
            query_length=query_length,
            passage_length=passage_length if self.folder is None else None,
            jsonl=self.jsonl,
        )


def teach_setup(config: TeachConfig, inputs: Mapping[str, Artifact]) -> TrainingSetup:
    """What a worker needs to know to train a teacher. Inputs: tokens, corpus; negatives, else they are random passages;
    start, else `config.backbone`.
    """
    start, negatives = (inputs[name].place if name in inputs else None for name in ("start", "negatives"))
    return TrainingSetup(
        kind="teach",
        objective=config.loss,
        train=config.train,
        backbone=config.backbone,
        tokens=inputs["tokens"].place,
        fingerprint=inputs["tokens"].fingerprint,
        corpus=inputs["corpus"].place,
        start=start,
        negatives=negatives,
        per_query=config.per_query,
        query_length=config.query_length,
        passage_length=config.loss.max_length,
    )


def teach(
    config: TeachConfig,
    inputs: Mapping[str, Artifact],
    out: Place,
    *,
    log: Callable[[int, dict[str, float]], None],
) -> dict[str, Any]:
    """The one-process step: `model/` is a sequence-classification folder of one label."""
    return run_training(teach_setup(config, inputs), out, local_reader, log)
