"""The vector of the first token, without what only the other tokens' vectors need.

In the last layer the first token asks all others for their keys and values; their own queries, their feed-forward
layers and their norms are of no use to it. That is 10 of the layer's 12 D^2 multiplications a token: a fifth of a model
of 4 layers.

Shapes: B rows, L tokens, D width, H attention heads.
"""

from typing import Any

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
        first_B1D, part = hidden_BLD[:, :1], self.last
        q, k, v = (
            part[name](stream).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name, stream in (("query", first_B1D), ("key", hidden_BLD), ("value", hidden_BLD))
        )
        attended_BH1D = F.scaled_dot_product_attention(q, k, v, seen_BL[:, None, None])
        attended_B1D = part["attention_out"](attended_BH1D.transpose(1, 2).flatten(2))
        y_B1D = part["attention_norm"](first_B1D + attended_B1D)
        z_B1D: Tensor = part["feed_norm"](y_B1D + part["feed_out"](F.gelu(part["feed_in"](y_B1D))))
        return z_B1D[:, 0]
