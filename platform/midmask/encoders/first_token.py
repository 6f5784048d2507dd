"""The vector of the first token, without what only the other tokens' vectors need.

In the last layer the first token looks at all others; their own queries, their feed-forward layers and their norms are
of no use to it. Nor are their keys and values, since its one query can be taken to where they come from. All that is
left of the layer's 12 D^2 multiplications a token is 2 H D: a model of 4 layers costs what 3 layers cost, in training
as in search.

Shapes: B rows, L tokens, D width, H attention heads, C columns of a head.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from midmask.encoders.families import FAMILIES, Family


def suits(model: Any) -> bool:
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
        visible_B11L: bool, false where a row is padded; none: no row is. types: as `inputs.type_inputs` gives them;
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
