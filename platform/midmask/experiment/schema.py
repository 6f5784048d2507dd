"""What an experiment is made of: corpus, tokens, backbone, objective, fine-tuning stages, evaluation; all in one
config.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from midmask.core.config import Config, added, as_user_error, flatten, override
from midmask.corpora.assemble import JoinConfig
from midmask.corpora.config import CorpusConfig
from midmask.encoders.backbone import BackboneConfig, shape_of
from midmask.encoders.families import BackboneShape
from midmask.encoders.representation import Representation
from midmask.errors import UserError
from midmask.evaluation.step import EvaluateConfig
from midmask.experiment.stage import StageConfig as StageConfig
from midmask.objectives import ObjectiveConfig, pretraining_config
from midmask.objectives.objective import RowForm
from midmask.queries.document_spans import SpansConfig
from midmask.queries.pseudo_queries import PseudoQueriesConfig
from midmask.queries.terms import WeighConfig
from midmask.text.tokens import TokensConfig
from midmask.training.optimiser import TrainConfig


class Recipe(Config):
    """A whole experiment. Every field has a dotted path (`objective.encoder_mask_ratio`) for commands and sweeps."""

    name: str = Field(description="the recipe's name, as in the table of recipes")
    protocol: str = Field("in_batch", description="the fine-tuning's name, as in the table of protocols")
    corpus: CorpusConfig = Field(default_factory=CorpusConfig, description="the collection that is read")
    pretrain_on: tuple[str, ...] = Field(
        (),
        description="collections for the middle training alone: FORMAT:PLACE as corpus.name; several are read "
        "together; none: the corpus itself",
    )
    tokens: TokensConfig = Field(default_factory=TokensConfig, description="how texts are tokenised")
    spans: SpansConfig = Field(default_factory=SpansConfig, description="how documents are cut into spans, if read")
    pseudo_queries: PseudoQueriesConfig = Field(
        default_factory=PseudoQueriesConfig, description="where passages' queries come from, if read"
    )
    weights: WeighConfig = Field(default_factory=WeighConfig, description="where term weights come from, if read")
    backbone: BackboneConfig = Field(default_factory=BackboneConfig, description="the encoder that is trained")
    objective: Annotated[SerializeAsAny[ObjectiveConfig] | None, BeforeValidator(pretraining_config)] = Field(
        description="the middle training; none: no middle training"
    )
    pretrain: TrainConfig = Field(description="length, batch and optimiser of the middle training")
    excerpt: int | None = added(
        None,
        "tokens of a passage that each visit of the middle training reads, from a place that is drawn anew, special "
        "tokens included; none: all that tokens.max_length leaves",
        ge=8,
    )
    representation: Representation = Field(
        default_factory=Representation, description="the vectors of a text that are scored"
    )
    stages: tuple[StageConfig, ...] = Field(min_length=1, description="fine-tuning stages, in order")
    evaluation: EvaluateConfig = Field(default_factory=EvaluateConfig, description="measures and depth of the search")

    @field_validator("pretrain_on")
    @classmethod
    def _collections_can_be_joined(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Raises UserError for an unknown format, or two collections of one name."""
        if names:
            JoinConfig(names=tuple(CorpusConfig(name=name).short_name for name in names))
        return names

    @model_validator(mode="after")
    def _stages_look_back(self) -> "Recipe":
        """A stage starts from, and mines with, stages before it."""
        for number, stage in enumerate(self.stages):
            sources = (*stage.sources, *stage.teacher_sources)
            ranking = [source.stage for source in sources if source.kind == "mined"]
            if number == 0 and (stage.starts_from == "previous" or None in ranking):
                raise ValueError(
                    "stages.0: the first stage has no stage before it; use stages.0.starts_from=pretrained "
                    'and stages.0.negatives=[] or ["bm25"]'
                )
            late = [stage for stage in ranking if stage is not None and stage >= number]
            if late:
                raise ValueError(f"stages.{number}.negatives: mined:{late[0]} is not a stage before it")
        return self

    @property
    def pretrained_backbone(self) -> BackboneConfig:
        """The middle training's. A method that sees no queries trains an undivided encoder; fine-tuning begins with a
        copy of it for each side.
        """
        if self.objective is None or self.objective.trains_queries or self.backbone.split is None:
            return self.backbone
        return self.backbone.model_copy(update={"experts": "none", "expert_norms": False})

    def fine_tuned_as(self, other: "Recipe") -> "Recipe":
        """This middle training with the other's fine-tuning, so that the two recipes differ only in the middle
        training.
        """
        shared = ("protocol", "representation", "stages", "evaluation")
        return self.model_copy(update={name: getattr(other, name) for name in shared})

    def seeded(self, seed: int, pretrain: int | None = None) -> "Recipe":
        """The recipe with another fine-tuning seed. Seeds share their teachers, and their middle training unless
        `pretrain` is another seed of that.
        """
        stages = {f"stages.{number}.train.seed": seed for number in range(len(self.stages))}
        return override(self, {**stages, **({} if pretrain is None else {"pretrain.seed": pretrain})})

    def all_seeds(self, seed: int) -> dict[str, object]:
        """Dotted path -> this seed, for every training of the recipe."""
        trained = [path for path in flatten(self) if path.endswith(".train.seed")]
        return dict.fromkeys([*trained, "pretrain.seed"], seed)

    @model_validator(mode="after")
    def _an_excerpt_is_of_whole_passages(self) -> "Recipe":
        if self.excerpt is None:
            return self
        if self.objective is None or self.objective.row_form().rows not in ("passages", "pseudo_queries"):
            what = "no middle training" if self.objective is None else f"objective = {self.objective.name}"
            raise ValueError(
                f"excerpt = {self.excerpt} with {what}: excerpts are of passages, which methods such as mlm, "
                "retromae and bow read; leave it at none (spans.span_length is the length of a span)"
            )
        if self.excerpt >= self.tokens.max_length:
            raise ValueError(
                f"excerpt = {self.excerpt}: tokens.max_length = {self.tokens.max_length} leaves no more than that of a "
                "passage; raise tokens.max_length, or leave excerpt at none"
            )
        return self

    @model_validator(mode="after")
    def _pairs_are_whole_rows(self) -> "Recipe":
        """In a part of a pair, or several end to end, the first [SEP] does not end the title."""
        if self.tokens.title_join != "pair" or self.objective is None:
            return self
        packed = self.objective.row_form().rows == "packed"
        broken = {
            "objective.packing = true": (packed, "set objective.packing=false"),
            f"excerpt = {self.excerpt}": (self.excerpt is not None, "leave excerpt at none"),
        }
        for what, (is_so, remedy) in broken.items():
            if is_so:
                raise ValueError(
                    f"tokens.title_join = pair with {what}: such rows do not state where a title ends and token type 1 "
                    f"begins; {remedy}, or set tokens.title_join=separator"
                )
        return self

    def check(self) -> None:
        """Finds what cannot be done on the backbone before any work is; reads the backbone's config, not its weights.

        Raises:
            UserError: if there is no such backbone, a method or the rows' length does not fit it, or nothing would be
                learned.
        """
        shape = shape_of(self.backbone)
        form = self.objective.row_form() if self.objective else RowForm()
        unread = {"spans", "pseudo_queries"} - {form.rows}
        for field, length in flatten(self).items():
            is_read = field.endswith("_length") and field.partition(".")[0] not in unread
            if is_read and ".teacher" not in field and length:  # a teacher has a backbone of its own
                _refuse_longer(field, length, shape)
        divided_later = self.pretrained_backbone != self.backbone
        if self.objective is not None and divided_later and self.backbone.saved_split is not None:
            raise UserError(
                f"backbone.experts = {self.backbone.experts}: {self.objective.name} sees no queries, and the query "
                f"expert in {self.backbone.name} would not be loaded. Use backbone.experts=drop, or objective cotmote."
            )
        if form.rows == "spans" and form.term_weights:
            raise UserError("objective.encoder_mask = weighted: spans have no term weights; choose word or token")
        if self.objective is not None:
            self.objective.check(shape)
            self.objective.check_learns(self.pretrain.batch_size)
        if (width := self.evaluation.width) is not None:
            self._check_scored_width(width, shape.width)
        for number, stage in enumerate(self.stages):
            stage.loss.check(shape)
            stage.loss.check_representation(self.representation, shape.width)
            stage.check(f"stages.{number}")
            if stage.teacher is not None and stage.teacher.train is not None:
                teacher_shape = shape_of(stage.teacher.backbone or self.backbone)
                _refuse_longer(f"stages.{number}.teacher.loss.max_length", stage.teacher.loss.max_length, teacher_shape)

    def _check_scored_width(self, width: int, whole: int) -> None:
        """Raises UserError for dimensions that no dense view has, or that an index does not search by."""
        no_vectors = self.representation.dense is None or self.evaluation.views == "lexical"
        dimensions = 0 if no_vectors else self.representation.width or whole
        if width > dimensions:
            raise UserError(
                f"evaluation.width = {width}: the dense view that is searched has {dimensions} dimensions; name no more"
            )
        if not self.evaluation.is_exact:
            raise UserError(
                f"evaluation.width = {width}: it is of an exact search; leave it out, or set evaluation.index=Flat"
            )


def _refuse_longer(field: str, length: int, shape: BackboneShape) -> None:
    """Raises UserError for a length that the backbone has no positions for."""
    if length > shape.max_length:
        raise UserError(
            f"{field} = {length}: the backbone takes at most {shape.max_length} tokens. Use {field}={shape.max_length} "
            "or less."
        )


def recipe_from(data: dict[str, Any]) -> Recipe:
    """A recipe from plain data, validated. Raises UserError naming the first wrong field."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise as_user_error(error, "") from None
