"""What an experiment is made of: corpus, tokens, backbone, objective, fine-tuning stages, evaluation; all in one
config.
"""

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from midmask.corpora import CorpusConfig
from midmask.derived.pseudo_queries import PseudoQueriesConfig
from midmask.derived.spans import SpansConfig
from midmask.derived.terms import WeighConfig
from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.errors import UserError
from midmask.evaluate.retriever import EvaluateConfig
from midmask.identity import Config
from midmask.objectives import OBJECTIVES, ObjectiveConfig
from midmask.objectives.contrastive import Contrastive
from midmask.objectives.objective import Reads
from midmask.retrieve.mine import MineConfig
from midmask.tokens import TokensConfig
from midmask.train.optimiser import TrainConfig


class StageConfig(Config):
    """One fine-tuning stage of a bi-encoder."""

    loss: Contrastive.Config = Field(default_factory=Contrastive.Config, description="the ranking loss")
    starts_from: Literal["pretrained", "previous"] = Field(
        "pretrained", description="the pre-trained encoder, or the stage before this one"
    )
    negatives: Literal["in-batch", "mined"] = Field(
        "in-batch", description="in-batch only, or also hard negatives mined with the stage before this one"
    )
    per_query: int = Field(0, ge=0, le=1000, description="hard negatives a query in each step; needs negatives=mined")
    mine: MineConfig = Field(default_factory=MineConfig, description="how the hard negatives are mined")
    train: TrainConfig = Field(description="length, batch and optimiser of the stage")

    @model_validator(mode="after")
    def _negatives_are_asked_for(self) -> "StageConfig":
        if (self.negatives == "mined") != (self.per_query > 0):
            raise ValueError(
                f"per_query = {self.per_query} with negatives = {self.negatives}: mined negatives need per_query >= 1, "
                "in-batch negatives per_query = 0"
            )
        return self


class Recipe(Config):
    """A whole experiment. Every field has a dotted path (`objective.encoder_mask_ratio`) for commands and sweeps."""

    name: str = Field(description="the recipe's name, as in the table of recipes")
    corpus: CorpusConfig = Field(default_factory=CorpusConfig, description="what is read")
    tokens: TokensConfig = Field(default_factory=TokensConfig, description="how it is tokenised")
    spans: SpansConfig = Field(default_factory=SpansConfig, description="how documents are cut into spans, if read")
    pseudo_queries: PseudoQueriesConfig = Field(
        default_factory=PseudoQueriesConfig, description="where passages' queries come from, if read"
    )
    weights: WeighConfig = Field(default_factory=WeighConfig, description="where term weights come from, if read")
    backbone: BackboneConfig = Field(default_factory=BackboneConfig, description="the encoder that is trained")
    objective: SerializeAsAny[ObjectiveConfig] | None = Field(description="the middle training; none: there is none")
    pretrain: TrainConfig = Field(description="length, batch and optimiser of the middle training")
    stages: tuple[StageConfig, ...] = Field(min_length=1, description="fine-tuning stages, in order")
    evaluation: EvaluateConfig = Field(default_factory=EvaluateConfig, description="measures and depth of the search")

    @field_validator("objective", mode="before")
    @classmethod
    def _objective_by_name(cls, value: Any) -> Any:
        if isinstance(value, dict):
            if "name" not in value:
                raise ValueError(f"objective: a name is required; known: {', '.join(OBJECTIVES)}")
            return OBJECTIVES[str(value["name"])].Config.model_validate(value)
        return value

    @model_validator(mode="after")
    def _first_stage_has_no_predecessor(self) -> "Recipe":
        if self.stages[0].negatives == "mined" or self.stages[0].starts_from == "previous":
            raise ValueError(
                "stages.0: the first stage has no stage before it; use negatives=in-batch, starts_from=pretrained"
            )
        return self

    def check(self) -> None:
        """Finds what cannot be done on the backbone before any work is; reads the backbone's config, not its weights.

        Raises:
            UserError: if there is no such backbone, or a method or the rows' length does not fit it.
        """
        shape = shape_of(self.backbone)
        reads = self.objective.reads() if self.objective else Reads()
        lengths = {"tokens.max_length": self.tokens.max_length}
        if reads.rows == "spans":
            lengths = {"spans.span_length": self.spans.span_length, **lengths}
        if reads.rows == "pseudo_queries":
            lengths = {"pseudo_queries.max_length": self.pseudo_queries.max_length, **lengths}
        for field, length in lengths.items():
            if length > shape.max_length:
                raise UserError(
                    f"{field} = {length}: the backbone takes at most {shape.max_length} tokens. "
                    f"Use {field}={shape.max_length} or less."
                )
        if self.objective is not None and self.backbone.split is not None and not self.objective.trains_queries:
            raise UserError(
                f"backbone.experts = {self.backbone.experts}: {self.objective.name} sees no queries, and their expert "
                "would stay behind. Use backbone.experts=none, or the objective cotmote."
            )
        if reads.rows == "spans" and reads.term_weights:
            raise UserError("objective.encoder_mask = weighted: spans have no term weights; choose word or token")
        for method in (self.objective, *(stage.loss for stage in self.stages)):
            if method is not None:
                method.check(shape)
