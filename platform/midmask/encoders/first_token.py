"""The vector of the first token, without what only the other tokens' vectors need.

In the last layer the first token looks at all others; their own queries, their feed-forward layers and their norms are
of no use to it. Nor are their keys and values, since its one query can be taken to where they come from. All that is
left of the layer's 12 D^2 multiplications a token is 2 H D: a model of 4 layers costs what 3 layers cost.

Shapes: B rows, L tokens, D width, H attention heads, C columns of a head.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from midmask.encoders.families import FAMILIES

ACTIVATIONS = ("hidden_act", "activation")
"""What configs call the activation of feed-forward layers. Others than the exact GELU are left to transformers."""


class FirstToken(nn.Module):
    """A Hugging Face base model whose last layer is computed for the first token alone.

    The model's last layer is taken from it, so it is of no other use afterwards.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        family = FAMILIES[model.config.model_type]
        path, _, name = family.layers.rpartition(".")
        layers = model.get_submodule(family.layers)
        setattr(model.get_submodule(path), name, layers[:-1])
        self.model = model
        self.heads = int(model.config.num_attention_heads)
        self.last = nn.ModuleDict(
            {part: layers[-1].get_submodule(place) for part, place in (family.layer_parts or {}).items()}
        )

    @staticmethod
    def suits(model: Any) -> bool:
        """Whether the model's layers are BERT's, so that its last one can be done by hand."""
        config = model.config
        if config.model_type not in FAMILIES or FAMILIES[config.model_type].layer_parts is None:
            return False
        activation = next((getattr(config, name) for name in ACTIVATIONS if hasattr(config, name)), None)
        return activation == "gelu" and not getattr(config, "is_decoder", False)

    def forward(self, ids_BL: Tensor, seen_BL: Tensor) -> Tensor:
        """The last hidden state of the first token, [B, D]. seen_BL: bool, false where a row is padded."""
        hidden_BLD = self.model(input_ids=ids_BL, attention_mask=seen_BL.long()).last_hidden_state
        first_BD, part = hidden_BLD[:, 0], self.last
        y_BD = part["attention_norm"](first_BD + part["attention_out"](self._attended(first_BD, hidden_BLD, seen_BL)))
        z_BD: Tensor = part["feed_norm"](y_BD + part["feed_out"](F.gelu(part["feed_in"](y_BD))))
        return z_BD

    def _attended(self, first_BD: Tensor, hidden_BLD: Tensor, seen_BL: Tensor) -> Tensor:
        """What the first token's heads take from all tokens, side by side: [B, D].

        q . (K h + b) = (K^T q) . h + a constant that the softmax does not see, and sum_i p_i (V h_i + b) = V sum_i p_i
        h_i + b; so no token's key or value is ever made.
        """
        query, key, value = (cast(nn.Linear, self.last[name]) for name in ("query", "key", "value"))
        q_BHC = query(first_BD).unflatten(-1, (self.heads, -1))
        key_HCD, value_HCD = (side.weight.view(self.heads, -1, side.in_features) for side in (key, value))
        asked_BHD = torch.einsum("bhc,hcd->bhd", q_BHC, key_HCD) / q_BHC.shape[-1] ** 0.5
        scores_BHL = (asked_BHD @ hidden_BLD.mT).masked_fill(~seen_BL[:, None], -torch.inf)
        mixed_BHD = scores_BHL.softmax(-1) @ hidden_BLD
        return torch.einsum("bhd,hcd->bhc", mixed_BHD, value_HCD).flatten(1) + value.bias
