"""The teaching step: a cross-encoder trained on lists of a positive and hard negatives; its scores then teach.

The loop, its checkpoints and its twin on Ray Train are those of fine-tuning, and so are the lists: a query of the split
with one of its positives, and `per_query` of its negatives, drawn anew at every visit.
"""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from midmask.core.config import Config
from midmask.encoders.backbone import BackboneConfig
from midmask.mining.mine import MineConfig
from midmask.objectives.finetuning.cross_encoder import ListwiseRanking
from midmask.store.artifact import Artifact
from midmask.teacher.score import PASSAGE_ROOM, ScoreConfig
from midmask.text.tokens import TokensConfig
from midmask.training.optimiser import TrainConfig
from midmask.training.pairs import PairExamples
from midmask.training.setup import TeachSetup


class TeachConfig(Config):
    """Training of a cross-encoder."""

    backbone: BackboneConfig = Field(description="the encoder that it starts from")
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
    """The teacher of a fine-tuning stage: trained here, a folder from elsewhere, or a file of its scores.

    All systems that are compared share one teacher, as in the papers: its encoder, lists and lengths are fields of its
    own, none of which depends on a system's middle training, unless `backbone` or `negatives` name one.
    """

    folder: str | None = Field(
        None, description="Hugging Face sequence-classification folder, taken as it is; none: a teacher is trained"
    )
    scores: str | None = Field(
        None,
        description="file of its scores, in place of a teacher: list layout (.parquet, .jsonl), SimLM's (.jsonl), or "
        "lines of query, passage and score (.tsv); all but .parquet may be gzip'd",
    )
    backbone: BackboneConfig | None = Field(
        None, description="backbone that is trained; none: the recipe's encoder as it is before any middle training"
    )
    loss: ListwiseRanking.Config = Field(
        default_factory=ListwiseRanking.Config, description="the ranking loss, and how long a pair is"
    )
    train: TrainConfig | None = Field(None, description="length, batch and optimiser; only if it is trained here")
    per_query: int = Field(15, ge=1, le=1000, description="negatives of a list in training")
    negatives: tuple[str, ...] = Field(
        ("bm25",),
        min_length=1,
        description="sources of the lists that it is trained on, as stages.N.negatives; mined ones make it another "
        "teacher for every encoder",
    )
    mine: MineConfig = Field(default_factory=MineConfig, description="how those are chosen")
    query_length: int | None = Field(None, ge=4, description="tokens of a query that it reads; none: as tokenised")
    passage_length: int | None = Field(None, ge=8, description="tokens of a passage that it reads; none: as tokenised")
    titles: bool | None = Field(None, description="whether it reads 'title text'; none: as the corpus is tokenised")
    jsonl: bool = Field(False, description="also write the scores as scores.jsonl.gz")

    @model_validator(mode="after")
    def _refuse_two_teachers(self) -> Self:
        if self.folder is None and self.scores is None and self.train is None:
            raise ValueError("a teacher is a folder or is trained; set folder, or train (or scores, a file)")
        if self.folder is not None and self.scores is not None:
            raise ValueError("folder and scores are two teachers; set one of them")
        return self

    @property
    def comes_from_elsewhere(self) -> bool:
        """Whether the teacher exists before the stage's negatives do."""
        return self.folder is not None or self.scores is not None

    def read_from(self, tokens: TokensConfig) -> TokensConfig:
        """The corpus's tokens, `tokens`, with the lengths and titles that this teacher reads: 'title text' as one text,
        since a query and a passage are a pair already.
        """
        return tokens.model_copy(
            update={
                "query_length": self.query_length or tokens.query_length,
                "max_length": self.passage_length or tokens.max_length,
                "titles": tokens.titles if self.titles is None else self.titles,
                "title_join": "space",
            }
        )

    def teaching(self, backbone: BackboneConfig, *, query_length: int) -> TeachConfig:
        """The step that trains it on `backbone`, if it is not a folder; `self.backbone` is checked by the caller."""
        if self.train is None:
            raise ValueError("a teacher from a folder is not trained")
        return TeachConfig(
            backbone=backbone, loss=self.loss, train=self.train, per_query=self.per_query, query_length=query_length
        )

    def scoring(self, split: str, tokens: TokensConfig) -> ScoreConfig:
        """The step that scores a split's lists; tokens: of the corpus.

        A teacher that was trained here reads passages as far as it did in training; a folder from elsewhere, as far as
        it can, unless `passage_length` is set.
        """
        read = self.read_from(tokens)
        return ScoreConfig(
            split=split,
            titles=read.titles,
            query_length=read.query_length,
            passage_length=read.max_length if self.folder is None else self.passage_length,
            jsonl=self.jsonl,
        )


def teach_setup(config: TeachConfig, inputs: Mapping[str, Artifact]) -> TeachSetup:
    """The setup of a worker that trains a teacher. Inputs: tokens, corpus; negatives, else they are random passages."""
    lengths = {"query_length": config.query_length, "passage_length": config.loss.max_length}
    rows = PairExamples.of(inputs, per_query=config.per_query, **lengths)
    return TeachSetup(
        objective=config.loss, train=config.train, backbone=config.backbone, tokens=rows.tokens, rows=rows
    )
