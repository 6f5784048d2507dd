"""Decoder layers, shared by objectives and dropped after pre-training.

Shapes: B rows of a batch, L tokens, D width, H attention heads, X rows of a visibility matrix: L, or 1 for all alike.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from midmask.encoders.backbone import Backbone


def fresh_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with weights from N(0, 0.02), biases zero."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(linear.weight, std=0.02)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


class DecoderLayer(nn.Module):
    """One post-norm Transformer layer whose queries and keys may come from different streams.

    attn = softmax(Q K^T / sqrt(width / heads)) V with dropout; y = LN(query + drop(W_o attn)); z = LN(y +
    drop(FFN(y))). The residual is the query stream (RetroMAE's two-stream decoder). With the same tensor for both
    streams it is an ordinary BERT layer. Fresh weights from N(0, 0.02), biases zero.
    """

    @classmethod
    def behind(cls, backbone: Backbone) -> "DecoderLayer":
        """A fresh layer of the shape of the encoder's."""
        shape = (backbone.width, backbone.heads, backbone.feed_forward)
        return cls(*shape, dropout=backbone.dropout, norm_eps=backbone.norm_eps)

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
        parts, dropout = dict(self.named_children()), self.dropout if self.training else 0.0
        y = attention_half(parts, query_BLD, context_BLD, visible, heads=self.heads, dropout=dropout)
        return feed_forward_half(parts, y, dropout=dropout)


def attention_half(
    parts: Mapping[str, nn.Module],
    query_BLD: Tensor,
    context_BLD: Tensor,
    visible: Tensor | None,
    *,
    heads: int,
    dropout: float,
    causal: bool = False,
) -> Tensor:
    """The first half of a post-norm layer, LN(query + drop(W_o attn)); [B, L, D].

    Args:
        parts: of a `DecoderLayer`, or of an encoder's layer (`Family.parts_of`).
        visible, causal: as in `attend`.
    """
    q, k, v = (
        parts[name](stream).unflatten(-1, (heads, -1)).transpose(1, 2)
        for name, stream in (("query", query_BLD), ("key", context_BLD), ("value", context_BLD))
    )
    attended_BLD = attend(q, k, v, visible, dropout, causal=causal).transpose(1, 2).flatten(2)
    y: Tensor = parts["attention_norm"](query_BLD + F.dropout(parts["attention_out"](attended_BLD), dropout))
    return y


def feed_forward_half(parts: Mapping[str, nn.Module], y_BLD: Tensor, *, dropout: float) -> Tensor:
    """The second half, LN(y + drop(FFN(y))); [B, L, D]."""
    inner_BLD = parts["feed_out"](F.gelu(parts["feed_in"](y_BLD)))
    z: Tensor = parts["feed_norm"](y_BLD + F.dropout(inner_BLD, dropout))
    return z


class Decoder(nn.ModuleList):
    """Ordinary layers of the encoder's shape on top of each other; each row sees all columns but padding."""

    def __init__(self, backbone: Backbone, *, layers: int) -> None:
        super().__init__(DecoderLayer.behind(backbone) for _ in range(layers))

    def forward(self, x_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        """The last states, [B, L, D]."""
        visible_B1L = (torch.arange(x_BLD.shape[1], device=x_BLD.device) < lengths_B[:, None])[:, None]
        for layer in self:
            x_BLD = layer(x_BLD, x_BLD, visible_B1L)
        return x_BLD


class CausalBlock(nn.Module):
    """One pre-norm block of GPT-2: x + drop(W_o attn(LN(x))), then the same around a feed-forward layer of 4 x width.

    What a row sees is the caller's: `causal_window`, or every row up to itself by default. GELU is exact, as in the
    decoders of query-as-context and its descendants, which take the encoder's activation and not GPT-2's approximation.
    Fresh weights from N(0, 0.02), biases zero; the two projections onto the residual stream from N(0, 0.02 / sqrt(2
    layers)), `layers` being how many blocks are stacked.
    """

    def __init__(self, width: int, heads: int, *, dropout: float, norm_eps: float, layers: int = 1) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm, self.feed_norm = nn.LayerNorm(width, norm_eps), nn.LayerNorm(width, norm_eps)
        self.query_key_value, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_in, self.feed_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        onto_residual = 0.02 / (2 * layers) ** 0.5
        for module in (self.query_key_value, self.attention_out, self.feed_in, self.feed_out):
            scaled = module is self.attention_out or module is self.feed_out
            nn.init.normal_(module.weight, std=onto_residual if scaled else 0.02)
            nn.init.zeros_(module.bias)

    def forward(self, x_BLD: Tensor, visible_BXL: Tensor | None = None) -> Tensor:
        """visible_BXL: true where row i may see column j; none: causal, without a window."""
        q, k, v = (
            stream.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for stream in self.query_key_value(self.attention_norm(x_BLD)).chunk(3, -1)
        )
        dropout = self.dropout if self.training else 0.0
        attended_BHLD = attend(q, k, v, visible_BXL, dropout, causal=visible_BXL is None)
        x_BLD = x_BLD + self._drop(self.attention_out(attended_BHLD.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.feed_in(self.feed_norm(x_BLD)))
        return x_BLD + self._drop(self.feed_out(inner))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class CausalDecoder(nn.Module):
    """A GPT-2 as wide as the encoder, without embeddings: dropout, `CausalBlock`s, LN. Rows see the
    vectors and, with a window, little else.
    """

    def __init__(self, backbone: Backbone, *, layers: int, window: int | None, vectors: int = 1) -> None:
        super().__init__()
        self.window, self.vectors, self.dropout = window, vectors, backbone.dropout
        width, heads, norm_eps = backbone.width, backbone.heads, backbone.norm_eps
        self.blocks = nn.ModuleList(
            CausalBlock(width, heads, dropout=self.dropout, norm_eps=norm_eps, layers=layers) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width, norm_eps)

    def forward(self, x_BLD: Tensor, lengths_B: Tensor) -> Tensor:
        """The states that predict the next token, [B, L, D]; sentence vectors are the first columns of `x_BLD`."""
        visible_BLL = causal_window(lengths_B, x_BLD.shape[1], self.window, self.vectors)
        x_BLD = F.dropout(x_BLD, self.dropout, self.training)
        for block in self.blocks:
            x_BLD = block(x_BLD, visible_BLL)
        states: Tensor = self.norm(x_BLD)
        return states


def causal_window(lengths_B: Tensor, length: int, window: int | None, vectors: int = 1) -> Tensor:
    """Which columns j a row i sees; bool, [B, L, L].

    Itself and the `window` - 1 columns before it (none: all before it), and of the first `vectors` columns all up to
    its own. Padding is seen by no row. No row is blind: rows of padding see the vectors, and what else a real row would
    see.
    """
    positions_L = torch.arange(length, device=lengths_B.device)
    behind_LL = positions_L[:, None] - positions_L
    vector_L = positions_L < vectors
    near_LL = behind_LL < (length if window is None else window)
    real_BL = (positions_L < lengths_B[:, None]) | vector_L
    return (behind_LL >= 0) & (near_LL | vector_L) & real_BL[:, None]


def attend(
    q_BHLD: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, dropout: float, *, causal: bool = False
) -> Tensor:
    """Attention of all heads; visible: bool, [B, X, L], none: all columns, or those up to the row if `causal`."""
    mask = None if visible is None else visible[:, None]
    return F.scaled_dot_product_attention(q_BHLD, k, v, mask, dropout, causal)


class DecoderPositions(nn.Module):
    """Where a decoder's rows are: the backbone's own table of positions or, where it has none, a learned one.

    Rotary and relative positions live in the attention of the encoder's layers; its embeddings say nothing of places,
    and no decoder layer here finds them by itself. So such a backbone's decoder has a table, fresh from N(0, 0.02), for
    its queries and its context; it is thrown away. The backbone is an argument, not a member: its weights are kept.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        shape = backbone.shape
        self.table = None if shape.has_positions else nn.Parameter(0.02 * torch.randn(shape.max_length, shape.width))

    def forward(self, backbone: Backbone, length: int) -> Tensor:
        """Raw rows, as a query stream takes them; [length, D]."""
        return backbone.positions(length) if self.table is None else self.table[:length]

    def embed(self, backbone: Backbone, ids_BL: Tensor) -> Tensor:
        """The backbone's embeddings with places in them, [B, L, D]."""
        embedded_BLD = backbone.embed(ids_BL)
        return embedded_BLD if self.table is None else embedded_BLD + self.table[: ids_BL.shape[1]]


def decoder_input(backbone: Backbone, positions: DecoderPositions, vector_B1D: Tensor, ids_BL: Tensor) -> Tensor:
    """A text as a decoder reads it: the vector (or K of them) as it is in the place of the first token, then the others
    embedded; [B, L + K - 1, D]."""
    return torch.cat([vector_B1D, positions.embed(backbone, ids_BL)[:, 1:]], 1)
