"""What is thrown away after pre-training, shared by objectives: the linear layer over the vocabulary with its loss, and
the two-stream decoder layer.

Shapes: R rows that carry a label, D width, V vocabulary, B rows of a batch, L tokens, H attention heads.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHUNK_VALUES = {"cpu": 2**23, "cuda": 2**28}
"""Logits held at a time. CPU: measured over 2**20 to 2**26 (tests/benchmarks/step_cost.py --chunks)."""


def linear_cross_entropy(hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_R: Tensor) -> Tensor:
    """The sum over rows of -log softmax(weight · hidden + bias)[label]; shape [].

    Logits exist for a chunk of rows at a time. Gradients are made in the forward pass, while the chunk is there, and
    scaled in the backward pass: three matrix products in all, as many as with stored logits. The softmax is in float32
    at least; the products follow autocast.
    """
    kind = hidden_RD.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_RD.dtype
    total: Tensor = _LinearCrossEntropy.apply(hidden_RD, weight_VD, bias_V, labels_R, dtype)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_R: Tensor, dtype: torch.dtype
    ) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        with torch.autocast(hidden_RD.device.type, enabled=False):
            total, grads = _loss_and_gradients(hidden_RD, weight_VD, bias_V, labels_R, dtype, any(wanted))
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [saved * grad.to(saved.dtype) for saved in ctx.saved_tensors]
        return (*(g if want else None for g, want in zip(scaled, ctx.needs_input_grad, strict=False)), None, None)


def _loss_and_gradients(
    hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_R: Tensor, dtype: torch.dtype, gradients: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The loss, and its gradients by hidden, weight and bias (none if not wanted)."""
    exact = torch.promote_types(bias_V.dtype, torch.float32)
    total = hidden_RD.new_zeros((), dtype=exact)
    hidden, weight = hidden_RD.to(dtype), weight_VD.to(dtype)
    grad_hidden = torch.empty_like(hidden_RD)
    grad_weight, grad_bias = torch.zeros_like(weight_VD), torch.zeros_like(bias_V, dtype=exact)
    step = max(1, CHUNK_VALUES[hidden.device.type] // len(weight))
    for at in range(0, len(hidden), step):
        rows, labels = hidden[at : at + step], labels_R[at : at + step, None]
        logits = torch.addmm(bias_V.to(dtype), rows, weight.t()).to(exact)
        log_p = torch.log_softmax(logits, 1, out=logits)
        total -= log_p.gather(1, labels).sum()
        if gradients:
            p = log_p.exp_()
            p.scatter_add_(1, labels, p.new_full((), -1.0).expand_as(labels))
            grad_bias += p.sum(0)
            p = p.to(dtype)
            grad_hidden[at : at + step] = p @ weight
            grad_weight.addmm_(p.t(), rows) if dtype == grad_weight.dtype else grad_weight.add_(p.t() @ rows)
    return total, (grad_hidden, grad_weight, grad_bias.to(bias_V.dtype)) if gradients else ()


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
