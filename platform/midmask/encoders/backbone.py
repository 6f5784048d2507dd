"""BERT-like masked language models under one set of names: which one is trained, how it begins, what it computes.

A backbone is one of `SIZES` with fresh weights, or a Hugging Face folder or hub id of a supported family.

Shapes: B rows, L tokens, D width, V vocabulary.
"""

from pathlib import Path
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from midmask.core.config import Config, added
from midmask.core.torch_randomness import fresh_weights
from midmask.encoders.experts import ExpertSplit, QueryExpert, read_expert_split
from midmask.encoders.families import (
    FAMILIES,
    BackboneShape,
    first_token,
    padding_mask,
    shape_from,
    suits_first_token,
    type_inputs,
    widen_scores,
)
from midmask.encoders.reading import SIZES, fresh_model, named_folder, read_model, read_settings, save_model
from midmask.encoders.representation import Pooling, Representation, Side, pool
from midmask.errors import UserError
from midmask.store.pretrained import transformer_folder
from midmask.text.vocabulary import Vocabulary, largest_id, load_tokenizer, refuse_tokens_beyond

SentenceVector = Literal["cls", "mean"]


class BackboneConfig(Config):
    """The encoder that is trained."""

    name: str = Field(
        "tiny",
        description="tiny, mini, small or base (fresh weights); wiki-mini; minilm (of the extra `pretrained`); or a "
        "Hugging Face folder, or the id of a hub model that is in the cache",
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


PADDED_VOCABULARY = 128
"""A published embedding table may have up to this many rows more than its tokenizer has tokens."""


class Backbone(nn.Module):
    """A masked LM and its parts: encoder, embedding module, position table, MLM head.

    `experts`, if any, are the weights that queries have for themselves; embedding module and MLM head are the model's
    own for both sides. `pooling` makes of hidden states what is scored; the default is the vector of [CLS].
    `has_fresh_head`: the encoder was trained before, its MLM head was not. `sentence`: what stands for a text in middle
    training. `pair_sep`: the id of [SEP] where rows are pairs, whose second text has token type 1 (`type_inputs`).
    """

    def __init__(
        self,
        model: Any,
        *,
        dropout: float,
        split: ExpertSplit | None = None,
        has_fresh_head: bool = False,
        sentence: SentenceVector = "cls",
    ) -> None:
        super().__init__()
        self.no_bias_V: Tensor
        widen_scores(model)
        self.model = model
        self.family = FAMILIES[model.config.model_type]
        self.dropout = dropout
        self.has_fresh_head = has_fresh_head
        self.sentence = sentence
        self.pair_sep: int | None = None
        self.shape = shape_from(model.config)
        self.width, self.layers, self.max_length = self.shape.width, self.shape.layers, self.shape.max_length
        self.heads = int(model.config.num_attention_heads)
        self.feed_forward = int(getattr(model.config, self.family.feed_forward))
        self.norm_eps = self.family.norm_eps(model.config)
        self.register_buffer("no_bias_V", torch.zeros(len(self.output_weight_VD)), persistent=False)
        self.experts = None if split is None else QueryExpert(split, self.encoder, self.family)
        self.pooling = Pooling(Representation(), self.width)

    def represent_as(self, representation: Representation, *, seed: int) -> None:
        """Sets the views of a text that are scored. A projection has fresh weights that depend on `seed` alone."""
        with fresh_weights(seed):
            self.pooling = Pooling(representation, self.width)

    @property
    def encoder(self) -> Any:
        """The base model, without the MLM head."""
        return self.model.base_model

    @property
    def output_weight_VD(self) -> Tensor:
        """The output matrix of the MLM head; the same tensor as the word embeddings where they are tied."""
        return self.family.output(self.model)[0]

    @property
    def output_bias_V(self) -> Tensor:
        """The bias of the MLM head; zeros if it has none."""
        bias = self.family.output(self.model)[1]
        return self.no_bias_V if bias is None else bias

    def set_output_bias(self, values_V: Tensor) -> None:
        """Sets the bias of the MLM head, if it has one; entries beyond the tokenizer's get the smallest value."""
        bias = self.family.output(self.model)[1]
        if bias is not None:
            bias.data.fill_(float(values_V.min()))[: len(values_V)] = values_V

    @property
    def word_embeddings_VD(self) -> Tensor:
        """The word embeddings, as wide as the hidden states."""
        weight: Tensor = self.encoder.get_input_embeddings().weight
        projection = self.family.projection(self.encoder)
        return weight if projection is None else F.linear(weight, projection.weight, projection.bias)

    def hidden(self, ids_BL: Tensor, lengths_B: Tensor, side: Side = "passage") -> Tensor:
        """Last hidden states, [B, L, D]. Padding is seen by no token.

        Raises:
            UserError: if a row is longer than the position table.
        """
        hidden: Tensor = self._encode(ids_BL, lengths_B, side)[0]
        return hidden

    def first(self, ids_BL: Tensor, lengths_B: Tensor, side: Side = "passage") -> Tensor:
        """Last hidden states of the first tokens, [B, D]; where the layers are BERT's, without the others' last layer.

        Raises:
            UserError: if a row is longer than the position table.
        """
        if (side == "query" and self.experts is not None) or not suits_first_token(self.encoder):
            return self.hidden(ids_BL, lengths_B, side)[:, 0]
        return first_token(self.encoder, ids_BL, self._visible(ids_BL, lengths_B), self._types(ids_BL, lengths_B))

    def hidden_and_layer(self, ids_BL: Tensor, lengths_B: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Of passages, last hidden states, and those behind layer 1 … `layers` (0: the embeddings), both [B, L, D]."""
        outputs = self._encode(ids_BL, lengths_B, "passage", output_hidden_states=True)
        return outputs[0], outputs.hidden_states[layer]

    def sentence_vector(self, hidden_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        """What stands for each text in middle training, of its last hidden states; [B, D]."""
        seen_BL = torch.arange(hidden_BLD.shape[1], device=lengths_B.device) < lengths_B[:, None]
        return pool(self.sentence, hidden_BLD, seen_BL)

    def sentence_vectors(
        self, ids_BL: Tensor, lengths_B: Tensor, *, normalise: bool = False, side: Side = "passage"
    ) -> Tensor:
        """The sentence vectors of token rows, [B, D]; of length 1 if `normalise`."""
        if self.sentence == "cls":
            vectors_BD = self.first(ids_BL, lengths_B, side)
        else:
            vectors_BD = self.sentence_vector(self.hidden(ids_BL, lengths_B, side), lengths_B)
        return F.normalize(vectors_BD, dim=-1) if normalise else vectors_BD

    def _encode(self, ids_BL: Tensor, lengths_B: Tensor, side: Side, **options: bool) -> Any:
        mask = self._visible(ids_BL, lengths_B)
        if mask is not None and self.family.mask == "tokens":
            mask = mask[:, 0, 0].long()
        inputs = {"input_ids": ids_BL, "attention_mask": mask, **self._types(ids_BL, lengths_B), **options}
        if side == "query" and self.experts is not None:
            return self.experts.run(self.encoder, inputs)
        return self.encoder(**inputs)

    def _types(self, ids_BL: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
        return type_inputs(self.model.config, self.pair_sep, ids_BL, lengths_B)

    def _visible(self, ids_BL: Tensor, lengths_B: Tensor) -> Tensor | None:
        length = ids_BL.shape[1]
        if length > self.max_length:
            raise UserError(
                f"tokens.max_length: a row of {length} tokens, but the backbone takes at most {self.max_length}. "
                f"Lower tokens.max_length."
            )
        return padding_mask(lengths_B, length)

    def embed(self, ids_BL: Tensor) -> Tensor:
        """Input of the first layer: embeddings of words, positions and type 0, after norm, dropout and projection; [B,
        L, D].
        """
        return self.family.embed(self.encoder, input_ids=ids_BL)

    def embed_stream(self, x_BLD: Tensor) -> Tensor:
        """The embedding module with `x_BLD` in the place of word embeddings; needs `BackboneShape.embeds_streams`."""
        return self.family.embed(self.encoder, input_ids=None, inputs_embeds=x_BLD)

    def positions(self, length: int) -> Tensor:
        """Rows of the position table without norm, as wide as the hidden states; [length, D].

        Raises:
            ValueError: if the backbone has no such table; `decoders.DecoderPositions` stands in for it.
        """
        if not self.shape.has_positions:
            raise ValueError(f"a {self.shape.family} backbone has no table of absolute positions")
        first = self.family.first_position(self.model.config)
        rows: Tensor = self.encoder.embeddings.position_embeddings.weight[first : first + length]
        projection = self.family.projection(self.encoder)
        return rows if projection is None else F.linear(rows, projection.weight)

    def transform(self, x: Tensor) -> Tensor:
        """The MLM head up to, and without, its output matrix; [..., D]."""
        return self.family.transform(self.model, x)

    def save(self, folder: Path, tokenizer_folder: Path) -> None:
        """Writes a Hugging Face folder: config.json, model.safetensors, the tokenizer; and `experts.safetensors`."""
        save_model(self.model, folder, tokenizer_folder)
        if self.experts is not None:
            self.experts.save(folder)


def build_backbone(config: BackboneConfig, vocabulary: Vocabulary, *, seed: int) -> Backbone:
    """The backbone that a config names. Fresh weights depend on `seed` alone, not on what was drawn before.

    Raises:
        UserError: if the name is neither a size nor a model that can be read, its family is not supported, or its
            vocabulary is not the tokenizer's.
    """
    with fresh_weights(seed):
        if config.is_pretrained:
            backbone = _load(config.name, dropout=config.dropout, config=config)
        else:
            settings = read_settings(config.name, config.dropout, vocabulary.size, vocabulary.pad_id)
            model, sentence = fresh_model(settings), config.sentence_vector
            backbone = Backbone(model, dropout=config.dropout, split=config.split, sentence=sentence)
    if config.name not in SIZES:
        _check_vocabulary(backbone, vocabulary, config.name)
    backbone.pair_sep = vocabulary.pair_sep
    return backbone


def shape_of(config: BackboneConfig) -> BackboneShape:
    """The shape of the backbone that a config names, without its weights.

    Raises:
        UserError: if the name is neither a size nor a model that can be read, or its family is not supported.
    """
    return shape_from(read_settings(config.name, config.dropout))


def load_backbone(folder: Path, *, dropout: float, config: BackboneConfig | None = None) -> Backbone:
    """The backbone in a Hugging Face folder. An MLM head that the folder lacks is made afresh, always the same.

    Args:
        config: with which experts and sentence vector; none: with the experts that the folder holds.

    Raises:
        UserError: if there is no model of a supported family, or its experts are not the wanted ones.
    """
    with fresh_weights(0):
        return _load(str(folder), dropout=dropout, config=config)


def _choose_split(folder: Path, config: BackboneConfig | None) -> ExpertSplit | None:
    """The experts that a folder is loaded with: its own, or copies of a plain encoder's weights."""
    saved = read_expert_split(folder)
    if config is None:
        return saved
    if saved is not None and config.experts != "drop" and saved != config.split:
        raise UserError(
            f"backbone.experts = {config.experts}: {folder} has {saved}. Set the same, or backbone.experts=drop to go "
            "on without its query expert."
        )
    return config.split


def _load(name: str, *, dropout: float, config: BackboneConfig | None) -> Backbone:
    folder = named_folder(name)
    split, sentence = _choose_split(folder, config), config.sentence_vector if config else "cls"
    model, has_fresh_head = read_model(name, dropout)
    backbone = Backbone(model, dropout=dropout, split=split, has_fresh_head=has_fresh_head, sentence=sentence)
    if backbone.experts is not None and read_expert_split(folder) is not None:
        backbone.experts.load(folder)
    return backbone


def _check_vocabulary(backbone: Backbone, vocabulary: Vocabulary, name: str) -> None:
    rows = len(backbone.output_weight_VD)
    pad = backbone.model.config.pad_token_id
    if not 0 <= rows - vocabulary.size < PADDED_VOCABULARY or pad not in (None, vocabulary.pad_id):
        folder = named_folder(name)
        if (transformer_folder(folder) / "tokenizer_config.json").is_file():
            refuse_tokens_beyond(f"backbone.name = {name!r}", largest_id(load_tokenizer(folder)), rows)
        raise UserError(
            f"backbone.name = {name!r}: its vocabulary has {rows} entries and padding id {pad}, the tokenizer "
            f"{vocabulary.size} and {vocabulary.pad_id}. Set tokens.tokenizer to {name}."
        )
