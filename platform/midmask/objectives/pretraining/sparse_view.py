"""A text as weights over the vocabulary (SPLADE, Formal et al. 2021), and that as one vector for a decoder. Shared.

s = max over positions of log(1 + relu(logits)); its projection is s times the matrix of word embeddings. Nothing is
detached. Shapes: B rows, L tokens, D width, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor

from midmask.batch import TokenRows
from midmask.encoders.backbone import Backbone
from midmask.encoders.pooling import highest_logits
from midmask.heads import linear_column_max
from midmask.vocabulary import Vocabulary

SparsePooling = Literal["all", "text"]
"""Positions that s looks at: all but padding, or none of the specials."""

Projection = Literal["sum", "mean"]
"""s times the embeddings, or that divided by the sum of s."""


def pooled_positions(text: TokenRows, vocabulary: Vocabulary, pooling: SparsePooling) -> Tensor:
    """Where s looks, by the true tokens; bool, [B, L]."""
    pooled_BL = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device) < text.lengths_B[:, None]
    return pooled_BL & ~vocabulary.special_V[text.ids_BL] if pooling == "text" else pooled_BL


def sparse_weights(
    backbone: Backbone, hidden_BLD: Tensor, pooled_BL: Tensor, *, logits: Literal["head", "embeddings"] = "head"
) -> Tensor:
    """s, [B, V], float32 at least. The maximum comes before log(1 + relu), which keeps the order.

    Args:
        logits: those of the MLM head, or the products of the hidden states themselves with the word embeddings.
    """
    if logits == "head":
        highest_BV = highest_logits(backbone, hidden_BLD, pooled_BL)
    else:
        highest_BV = linear_column_max(hidden_BLD, backbone.word_embeddings_VD, backbone.no_bias_V, pooled_BL)
    return torch.log1p(torch.relu(highest_BV))


def project(backbone: Backbone, sparse_BV: Tensor, projection: Projection) -> Tensor:
    """s as a vector as wide as the hidden states, [B, D]."""
    if projection == "mean":
        tiny = torch.finfo(sparse_BV.dtype).tiny  # a text whose logits are all negative has s = 0
        sparse_BV = sparse_BV / sparse_BV.sum(1, keepdim=True).clamp(min=tiny)
    return sparse_BV.to(backbone.word_embeddings_VD.dtype) @ backbone.word_embeddings_VD
