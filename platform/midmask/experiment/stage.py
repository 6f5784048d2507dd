"""One stage of fine-tuning: where it starts, its loss, its negatives and its teacher."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from midmask.core.config import Config
from midmask.errors import UserError, how_to_set
from midmask.mining.mine import MineConfig
from midmask.objectives import finetuning_config
from midmask.objectives.finetuning.contrastive import Contrastive
from midmask.objectives.finetuning.ranking import RankingConfig
from midmask.teacher.teach import TeacherConfig
from midmask.training.optimiser import TrainConfig

NegativeKind = Literal["bm25", "mined", "file"]


@dataclass(frozen=True)
class NegativeSource:
    """Where hard negatives come from."""

    kind: NegativeKind
    stage: int | None = None  # of mined ones, the number of the stage whose encoder ranks, from 0; none: the one before
    file: str = ""  # in the layout of `exchange.negatives_files`

    @staticmethod
    def parse(text: str) -> "NegativeSource":
        """Parses `bm25`, `mined`, `mined:0` or `file:PATH`. Raises ValueError for anything else."""
        kind, colon, rest = text.partition(":")
        if kind == "file" and rest:
            return NegativeSource("file", file=rest)
        if kind == "mined" and (not colon or rest.isdecimal()):
            return NegativeSource("mined", int(rest) if colon else None)
        if text == "bm25":
            return NegativeSource("bm25")
        raise ValueError(f"{text!r} is no source of negatives; write bm25, mined, mined:STAGE (from 0) or file:PATH")


class StageConfig(Config):
    """One fine-tuning stage of a bi-encoder."""

    loss: Annotated[SerializeAsAny[RankingConfig], BeforeValidator(finetuning_config)] = Field(
        default_factory=Contrastive.Config, description="the ranking loss"
    )
    starts_from: Literal["pretrained", "previous"] = Field(
        "pretrained", description="the pre-trained encoder, or the stage before this one"
    )
    negatives: tuple[str, ...] = Field(
        (),
        description="sources of hard negatives beside the batch's own: bm25, mined (with the stage before this one), "
        "mined:STAGE (counted from 0), file:PATH (.jsonl of msmarco-hard-negatives, "
        "Tevatron or SimLM, or .tsv of lists); several are mixed",
    )
    per_query: int = Field(
        0, ge=0, le=1000, description="hard negatives for each query in each step; 0 without sources"
    )
    mine: MineConfig = Field(default_factory=MineConfig, description="how negatives are chosen from their sources")
    teacher: TeacherConfig | None = Field(None, description="the cross-encoder whose scores are learnt, if any")
    queries: int | None = Field(
        None, ge=1, description="number of train queries, drawn once by mine.seed and saved by id; none: all"
    )
    missing_positive_score: Literal["refuse", "highest"] = Field(
        "refuse", description="a positive that the teacher has not scored: an error, or its query's highest score"
    )
    train: TrainConfig = Field(description="length, batch and optimiser of the stage")

    def check(self, place: str) -> None:
        """Raises UserError for an index that no encoder searches, or if a query would have its positive for its only
        candidate. place: the stage's, `stages.N`.
        """
        if self.sources:
            if not self.mine.is_exact and all(source.kind != "mined" for source in self.sources):
                raise UserError(
                    f"{place}.mine.index = {self.mine.index}: negatives = {list(self.negatives)} are not searched for "
                    "with an encoder; leave it at Flat"
                )
            return
        mine = how_to_set({f"{place}.negatives": ["bm25"], f"{place}.per_query": 1})
        alone = "a query's only candidate is its positive, so nothing can be learned"
        if self.loss.needs_negatives:
            raise UserError(
                f"{place}.loss.candidates = {self.loss.candidates} with {place}.negatives = []: {alone}; set "
                f"{place}.loss.candidates=all, or mine negatives: {mine}"
            )
        if self.train.batch_size == 1:
            raise UserError(
                f"{place}.train.batch_size = 1 with {place}.negatives = []: {alone}; set "
                f"{place}.train.batch_size=2 or more, or mine negatives: {mine}"
            )

    @property
    def sources(self) -> tuple[NegativeSource, ...]:
        return tuple(NegativeSource.parse(text) for text in self.negatives)

    @property
    def teacher_sources(self) -> tuple[NegativeSource, ...]:
        """Where the lists come from that the stage's teacher is trained on; none without a training of it."""
        if self.teacher is None or self.teacher.comes_from_elsewhere:
            return ()
        return tuple(NegativeSource.parse(text) for text in self.teacher.negatives)

    @model_validator(mode="after")
    def _negatives_and_teacher_fit(self) -> Self:
        if bool(self.sources) != (self.per_query > 0):
            raise ValueError(
                f"per_query = {self.per_query} with negatives = {list(self.negatives)}: sources need per_query >= 1, "
                "and per_query >= 1 needs a source such as bm25 or mined"
            )
        if self.loss.needs_teacher and self.teacher is None:
            raise ValueError(
                f"loss.name = {self.loss.name} needs a teacher; set stages.*.teacher, or learn from judgements alone: "
                f"{how_to_set({'stages.*.loss': {'name': 'contrastive'}})}"
            )
        if self.queries is not None and self.mine.max_queries is not None:
            raise ValueError("queries and mine.max_queries are two samples; set one of them")
        if self.mine.filters.teacher_margin is not None and not (self.teacher and self.teacher.comes_from_elsewhere):
            raise ValueError(
                "mine.filters.teacher_margin asks for scores before negatives are chosen, so the teacher cannot be "
                "trained on them; set stages.*.teacher.folder or stages.*.teacher.scores"
            )
        if self.teacher is not None and not self.sources:
            raise ValueError("a teacher scores candidates; set stages.*.negatives and stages.*.per_query too")
        return self
