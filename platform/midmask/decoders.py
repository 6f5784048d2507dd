"""Decoder layers that are thrown away after pre-training, shared by objectives.

Shapes: B rows of a batch, L tokens, D width, H attention heads.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class DecoderLayer(nn.Module):
    """One post-norm Transformer layer whose queries and keys may come from different streams.

    attn = softmax(Q K^T / sqrt(width / heads)) V with dropout; y = LN(query + drop(W_o attn)); z = LN(y +
    drop(FFN(y))). The residual is the query stream (RetroMAE's two-stream decoder). With the same tensor for both
    streams it is an ordinary BERT layer. Fresh weights from N(0, 0.02), biases zero.
    """

    def __init__(self, width: int, heads: int, feed_forward: int, *, dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attention_out, self.attention_norm = nn.Linear(width, width), nn.LayerNorm(width, norm_eps)
        self.feed_in, self.feed_out = nn.Linear(width, feed_forward), nn.Linear(feed_forward, width)
        self.feed_norm = nn.LayerNorm(width, norm_eps)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, query_BLD: Tensor, context_BLD: Tensor, visible: Tensor | None) -> Tensor:
        """visible: bool, [B, L or 1, L], true where row i may see column j; none: all."""
        q, k, v = (
            project(stream).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, stream in ((self.query, query_BLD), (self.key, context_BLD), (self.value, context_BLD))
        )
        mask = None if visible is None else visible[:, None]
        attended_BHLD = F.scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        attended = self._drop(self.attention_out(attended_BHLD.transpose(1, 2).flatten(2)))
        y = self.attention_norm(query_BLD + attended)
        z: Tensor = self.feed_norm(y + self._drop(self.feed_out(F.gelu(self.feed_in(y)))))
        return z

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)
