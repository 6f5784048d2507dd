"""Which encoder is trained, and how it begins."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from midmask.encoders.experts import ExpertSplit, read_expert_split
from midmask.encoders.reading import SIZES, named_folder
from midmask.identity import Config, added

SentenceVector = Literal["cls", "mean"]


class BackboneConfig(Config):
    """The encoder that is trained."""

    name: str = Field(
        "tiny",
        description="tiny, mini, small or base (fresh weights); minilm (of the extra `pretrained`); or a Hugging Face "
        "folder, or the id of a hub model that is in the cache",
    )
    fresh: bool = Field(
        False, description="random weights in the shape of the named model; a named size has them in any case"
    )
    head_bias: Literal["zero", "unigram"] = added(
        "zero",
        "where the bias of an MLM head begins that the model lacks: at 0, as published heads do, or at the "
        "logarithms of the tokens' shares in the middle training's passages",
    )
    sentence_vector: SentenceVector = added(
        "cls",
        "what stands for a text in middle training: the last hidden state of [CLS], or the mean of all its "
        "tokens' states, for encoders that were trained so",
    )
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="dropout of hidden states and attention, a probability")
    experts: Literal["none", "ffn", "all", "drop"] = Field(
        "none",
        description="layers that queries and passages do not share: none, the feed-forward layers, or all; drop: none, "
        "and the query expert of a loaded folder is not used",
    )
    expert_norms: bool = Field(
        False, description="ffn: whether each expert also has norms of its own in the feed-forward layers (unpublished)"
    )

    @field_validator("experts", mode="before")
    @classmethod
    def _none_as_typed(cls, value: Any) -> Any:
        """On a command line, `none` stands for no value."""
        return "none" if value is None else value

    @model_validator(mode="after")
    def _norms_are_of_feed_forward_experts(self) -> Self:
        if self.expert_norms and self.experts != "ffn":
            raise ValueError(f"expert_norms = true needs experts = ffn, not {self.experts}")
        return self

    @property
    def is_pretrained(self) -> bool:
        """Whether training starts from weights that were trained before."""
        return not self.fresh and self.name not in SIZES

    @property
    def split(self) -> ExpertSplit | None:
        """Which weights queries and passages do not share; None if they share all."""
        return ExpertSplit(self.experts, self.expert_norms) if self.experts in ("ffn", "all") else None

    @property
    def saved_split(self) -> ExpertSplit | None:
        """The experts that its folder holds, if any."""
        return None if self.name in SIZES else read_expert_split(named_folder(self.name))
