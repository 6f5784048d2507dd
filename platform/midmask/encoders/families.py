"""The supported families of Hugging Face masked LMs: how they differ, their inputs, the first token's vector alone.

DeBERTa: relative positions, so mostly no table; its published MLM head is not the one that transformers makes by
default. ModernBERT: rotary positions, a window in most layers, a norm behind the last. ELECTRA: embeddings of their own
width, projected behind their norm; its head is the generator's.

In the last layer the first token looks at all others; their own queries, their feed-forward layers and their norms are
of no use to it. Nor are their keys and values, since its one query can be taken to where they come from. All that is
left of the layer's 12 D^2 multiplications a token is 2 H D: a model of 4 layers costs what 3 layers cost, in training
as in search (`first_token`).

Shapes: B rows, L tokens, D width, H attention heads, C columns of a head.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from midmask.core.registry import Registry


def padding_mask(lengths_B: Tensor, length: int) -> Tensor | None:
    """True at real tokens, [B, 1, 1, L], as the attention of every layer takes it; none if no row is padded.

    On a GPU it is always made: to look at the lengths would make the host wait for the device.
    """
    if not lengths_B.is_cuda and bool((lengths_B == length).all()):
        return None
    return _real_tokens(lengths_B, length)[:, None, None]


def count_token_types(settings: Any) -> int:
    """Token types that the model of a Hugging Face config tells apart; 0 if it has none."""
    return int(getattr(settings, "type_vocab_size", 0))


def type_inputs(settings: Any, pair_sep: int | None, ids_BL: Tensor, lengths_B: Tensor) -> dict[str, Tensor]:
    """The argument `token_type_ids` of a model, int64 [B, L]: 1 behind the first [SEP] of each row, 0 up to it and at
    padding. Equal to what a tokenizer gives for pairs and for single texts, whose only [SEP] is their last token.

    Empty, so that all types are 0, for a model without a second type.

    Args:
        settings: the model's Hugging Face config. pair_sep: the id of [SEP] where rows are pairs; none: they are not.
    """
    if pair_sep is None or count_token_types(settings) < 2:
        return {}
    is_sep_BL = (ids_BL == pair_sep).long()
    behind_BL = is_sep_BL.cumsum(1) > is_sep_BL
    return {"token_type_ids": (behind_BL & _real_tokens(lengths_B, ids_BL.shape[1])).long()}


def _real_tokens(lengths_B: Tensor, length: int) -> Tensor:
    """False at padding, [B, L]."""
    return torch.arange(length, device=lengths_B.device) < lengths_B[:, None]


def _transform_under_cls(model: Any, x: Tensor) -> Any:
    return model.cls.predictions.transform(x)


def _output_layer(model: Any) -> tuple[Tensor, Tensor | None]:
    layer = model.get_output_embeddings()
    return layer.weight, layer.bias


def _behind_attention(layer: Any, attended: Tensor, x: Tensor) -> Any:
    return layer.feed_forward_chunk(layer.attention.output(attended, x))


@dataclass(frozen=True)
class Family:
    """Where the parts of a Hugging Face masked LM are, and what its config calls them."""

    transform: Callable[[Any, Tensor], Tensor] = _transform_under_cls  # (model, x) -> x, all but the output matrix
    output: Callable[[Any], tuple[Tensor, Tensor | None]] = _output_layer  # model -> that matrix and its bias
    # (encoder, input_ids or inputs_embeds) -> what the first layer reads
    embed: Callable[..., Tensor] = lambda encoder, **inputs: encoder.embeddings(**inputs)
    # encoder -> the linear layer from the embeddings' width to the hidden states', if they differ
    projection: Callable[[Any], nn.Linear | None] = lambda encoder: None
    embedding_width: Callable[[Any], int] = lambda config: int(config.hidden_size)  # columns of the word embeddings
    has_positions: Callable[[Any], bool] = lambda config: True  # whether there is a table of absolute positions
    first_position: Callable[[Any], int] = lambda config: 0  # its row that the first token takes
    norm_eps: Callable[[Any], float] = lambda config: float(config.layer_norm_eps)  # what norms add to the variance
    feed_forward: str = "intermediate_size"  # name of a config field
    dropouts: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # names of config fields
    attention: Literal["sdpa", "eager"] = "sdpa"  # how transformers computes it
    # What hides padding: [B, 1, 1, L] as it is, or [B, L], of which transformers makes masks of its own
    mask: Literal["columns", "tokens"] = "columns"
    # Patterns of names in the base model: weights of feed-forward layers' linear layers, and of their norms
    feed_forward_weights: str = r"layer\.\d+\.(intermediate|output)\.dense\."
    feed_forward_norms: str = r"layer\.\d+\.output\.LayerNorm\."
    layers: str = "encoder.layer"  # where the base model has its layers
    # Where a layer has its parts, by their names in a `decoders.DecoderLayer`; none if it is of another kind
    layer_parts: Mapping[str, str] | None = None
    attention_dropout: str = "attention.self.dropout"  # where a layer has that of its attention
    # (layer, what the heads attended, what the layer reads), both [..., D] -> what the layer gives
    behind_attention: Callable[[Any, Tensor, Tensor], Tensor] = _behind_attention

    def parts_of(self, encoder: nn.Module, number: int) -> dict[str, nn.Module]:
        """The parts of one layer of an encoder, by their names in a `decoders.DecoderLayer`; of plain layers alone."""
        assert self.layer_parts is not None
        layer = encoder.get_submodule(f"{self.layers}.{number}")
        return {name: layer.get_submodule(place) for name, place in self.layer_parts.items()}


@dataclass(frozen=True)
class BackboneShape:
    """The facts about a backbone that a method needs before the backbone is made."""

    family: str
    layers: int
    width: int
    embedding_width: int  # columns of the word embeddings and of the output matrix (ELECTRA: may differ from `width`)
    has_positions: bool  # whether there is a table of absolute positions
    max_length: int  # tokens of the longest row
    dropout: float  # a probability

    @property
    def has_plain_layers(self) -> bool:
        """Whether its layers are BERT's, so that a decoder may begin as a copy of them."""
        return FAMILIES[self.family].layer_parts is not None

    @property
    def embeds_streams(self) -> bool:
        """Whether the embedding module has positions, and takes hidden states in place of words."""
        return self.has_positions and self.embedding_width == self.width


_BERT_LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_in": "intermediate.dense",
    "feed_out": "output.dense",
    "feed_norm": "output.LayerNorm",
}
_DISTILBERT_LAYER = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "attention_out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed_in": "ffn.lin1",
    "feed_out": "ffn.lin2",
    "feed_norm": "output_layer_norm",
}


def _distilbert_behind_attention(layer: Any, attended: Tensor, x: Tensor) -> Any:
    y = layer.sa_layer_norm(layer.attention.out_lin(attended) + x)
    return layer.output_layer_norm(layer.ffn(y) + y)


def _deberta_transform(model: Any, x: Tensor) -> Any:
    if model.legacy:
        return _transform_under_cls(model, x)
    head = model.lm_predictions.lm_head
    return head.LayerNorm(head.transform_act_fn(head.dense(x)))


def _deberta_output(model: Any) -> tuple[Tensor, Tensor | None]:
    """The published head multiplies by the word embeddings; transformers calls its dense layer the output."""
    if model.legacy:
        return _output_layer(model)
    return model.get_input_embeddings().weight, model.lm_predictions.lm_head.bias


def _electra_embed(encoder: Any, **inputs: Any) -> Any:
    embedded, project = encoder.embeddings(**inputs), _electra_projection(encoder)
    return embedded if project is None else project(embedded)


def _electra_projection(encoder: Any) -> nn.Linear | None:
    return getattr(encoder, "embeddings_project", None)


_DEBERTA = Family(
    transform=_deberta_transform,
    output=_deberta_output,
    projection=lambda encoder: encoder.embeddings.embed_proj,
    embedding_width=lambda config: int(getattr(config, "embedding_size", config.hidden_size)),
    has_positions=lambda config: bool(config.position_biased_input),
    attention="eager",
    mask="tokens",
)

FAMILIES = Registry(
    "backbone family",
    {
        "bert": Family(layer_parts=_BERT_LAYER),
        "roberta": Family(
            lambda model, x: model.lm_head.layer_norm(F.gelu(model.lm_head.dense(x))),
            first_position=lambda config: int(config.pad_token_id) + 1,
            layer_parts=_BERT_LAYER,
        ),
        "deberta": _DEBERTA,
        "deberta-v2": _DEBERTA,  # and v3, whose configs say v2
        "distilbert": Family(
            lambda model, x: model.vocab_layer_norm(model.activation(model.vocab_transform(x))),
            norm_eps=lambda config: 1e-12,  # written in its code, not in its config
            feed_forward="hidden_dim",
            dropouts=("dropout", "attention_dropout"),
            feed_forward_weights=r"layer\.\d+\.ffn\.lin[12]\.",
            feed_forward_norms=r"layer\.\d+\.output_layer_norm\.",
            layers="transformer.layer",
            layer_parts=_DISTILBERT_LAYER,
            attention_dropout="attention.dropout",
            behind_attention=_distilbert_behind_attention,
        ),
        "modernbert": Family(
            lambda model, x: model.head(x),
            has_positions=lambda config: False,
            norm_eps=lambda config: float(config.norm_eps),
            dropouts=("embedding_dropout", "attention_dropout", "mlp_dropout"),
            mask="tokens",  # most layers look through a window, which one mask for all layers would open
            feed_forward_weights=r"layers\.\d+\.mlp\.W[io]\.",
            feed_forward_norms=r"layers\.\d+\.mlp_norm\.",
        ),
        "electra": Family(
            lambda model, x: model.generator_predictions(x),
            embed=_electra_embed,
            projection=_electra_projection,
            embedding_width=lambda config: int(config.embedding_size),
            layer_parts=_BERT_LAYER,
        ),
    },
)


def shape_from(settings: Any) -> BackboneShape:
    """The shape of the model that a Hugging Face config describes. Raises UserError if its family is not supported."""
    family = FAMILIES[settings.model_type]
    return BackboneShape(
        family=str(settings.model_type),
        layers=int(settings.num_hidden_layers),
        width=int(settings.hidden_size),
        embedding_width=family.embedding_width(settings),
        has_positions=family.has_positions(settings),
        max_length=int(settings.max_position_embeddings) - family.first_position(settings),
        dropout=float(getattr(settings, family.dropouts[0])),
    )


class WideScores(nn.Module):
    """Attention scores as float32 at least."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.to(torch.promote_types(scores.dtype, torch.float32))


def widen_scores(model: nn.Module) -> None:
    """Lets a DeBERTa (the first version) compute in bf16 under autocast.

    Its queries are float32 there, since a bias is added to them, while its scores are bf16: transformers then hides
    padding by the lowest float32, which bf16 can't hold, and raises. Scores pass through `head_logits_proj`, if there
    is one. Other models, and those that have such a layer, stay as they are; weights and config do in any case.
    """
    for module in model.modules():
        if getattr(module, "head_logits_proj", module) is None:
            module.head_logits_proj = WideScores()


def suits_first_token(model: Any) -> bool:
    """Whether a Hugging Face base model's layers are BERT's, so that its last one can be done by hand."""
    config = model.config
    if config.model_type not in FAMILIES or FAMILIES[config.model_type].layer_parts is None:
        return False
    return config._attn_implementation == "sdpa" and not getattr(config, "is_decoder", False)


def first_token(
    model: Any, ids_BL: Tensor, visible_B11L: Tensor | None, types: Mapping[str, Tensor] | None = None
) -> Tensor:
    """The last hidden state of the first token, [B, D], of a model that `suits`.

    Its gradients are those of the whole model, but for the last layer's key bias, which gets none instead of a rounding
    error; while it trains, dropout acts in the places where it does there.

    Args:
        visible_B11L: bool, false where a row is padded; none: no row is. types: as `type_inputs` gives them;
            none: all are 0.
    """
    family = FAMILIES[model.config.model_type]
    layers = model.get_submodule(family.layers)
    hidden_BLD = family.embed(model, input_ids=ids_BL, **(types or {}))
    for layer in layers[:-1]:
        hidden_BLD = layer(hidden_BLD, visible_B11L)
    attended_BD = _attend(layers[-1], family, int(model.config.num_attention_heads), hidden_BLD, visible_B11L)
    return family.behind_attention(layers[-1], attended_BD[:, None], hidden_BLD[:, :1])[:, 0]


def _attend(layer: Any, family: Family, heads: int, hidden_BLD: Tensor, visible_B11L: Tensor | None) -> Tensor:
    """What the first token's heads take from all tokens, side by side: [B, D].

    q . (K h + b) = (K^T q) . h + a constant that the softmax does not see, and sum_i p_i (V h_i + b) = V sum_i p_i
    h_i + b sum_i p_i, where dropout may leave another sum than 1; so no token's key or value is ever made.
    """
    places = family.layer_parts or {}
    query, key, value = (layer.get_submodule(places[name]) for name in ("query", "key", "value"))
    q_BHC = query(hidden_BLD[:, 0]).unflatten(-1, (heads, -1))
    key_HCD, value_HCD = (side.weight.view(heads, -1, side.in_features) for side in (key, value))
    asked_BHD = torch.einsum("bhc,hcd->bhd", q_BHC, key_HCD) / q_BHC.shape[-1] ** 0.5
    scores_BHL = asked_BHD @ hidden_BLD.mT
    if visible_B11L is not None:
        scores_BHL = scores_BHL.masked_fill(~visible_B11L[:, 0], -torch.inf)
    p_BHL = layer.get_submodule(family.attention_dropout)(scores_BHL.softmax(-1))
    mixed_BHC = torch.einsum("bhd,hcd->bhc", p_BHL @ hidden_BLD, value_HCD)
    bias_BHC = p_BHL.sum(-1, keepdim=True) * value.bias.view(heads, -1)
    attended_BD: Tensor = (mixed_BHC + bias_BHC).flatten(1)
    return attended_BD
