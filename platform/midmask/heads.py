"""What is thrown away after pre-training, shared by objectives: the linear layer over the vocabulary with its loss, and
the two-stream decoder layer.

Shapes: R rows that carry a label, D width, V vocabulary, B rows of a batch, L tokens, H attention heads.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHUNK_VALUES = {"cpu": 2**24, "cuda": 2**28}
"""Logits held at a time. On a CPU, 2,016 rows over V = 30,522 take equally long from 2**22 to 2**25 (within 8%, widths
256 and 768) and a third longer at 2**20. The figure for GPUs is not measured."""


def linear_cross_entropy(hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_R: Tensor) -> Tensor:
    """The sum over rows of -log softmax(weight · hidden + bias)[label]; shape [].

    Logits exist for a chunk of rows at a time. Gradients are made in the forward pass, while the chunk is there, and
    scaled in the backward pass: three matrix products in all, as many as with stored logits. The softmax is in float32
    at least; the products follow autocast.
    """
    kind = hidden_RD.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_RD.dtype
    tensors = (hidden_RD, weight_VD, bias_V)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    total: Tensor = _LinearCrossEntropy.apply(*tensors, labels_R, dtype, learns)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_RD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        labels_R: Tensor,
        dtype: torch.dtype,
        learns: bool,
    ) -> Tensor:
        exact = torch.promote_types(bias_V.dtype, torch.float32)
        total = hidden_RD.new_zeros((), dtype=exact)
        grads = [torch.zeros_like(tensor) for tensor in (hidden_RD, weight_VD, bias_V)] if learns else []
        step = max(1, CHUNK_VALUES[hidden_RD.device.type] // len(weight_VD))
        with torch.autocast(hidden_RD.device.type, enabled=False):
            hidden, weight, bias = hidden_RD.to(dtype), weight_VD.to(dtype), bias_V.to(dtype)
            space = hidden.new_empty(min(step, len(hidden)), len(weight))
            for at in range(0, len(hidden), step):
                rows, labels = hidden[at : at + step], labels_R[at : at + step, None]
                logits = torch.addmm(bias, rows, weight.t(), out=space[: len(rows)]).to(exact)
                log_p = torch.log_softmax(logits, 1, out=logits)
                total -= log_p.gather(1, labels).sum()
                if learns:
                    p = log_p.exp_()
                    p.scatter_add_(1, labels, p.new_full(labels.shape, -1.0))
                    _add_gradients(p, rows, weight, grads[0][at : at + step], *grads[1:])
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(tensor * grad.to(tensor.dtype) if wanted else None for tensor, wanted in saved), None, None, None)


def _add_gradients(
    p_CV: Tensor,
    rows_CD: Tensor,
    weight_VD: Tensor,
    hidden_grad_CD: Tensor,
    weight_grad_VD: Tensor,
    bias_grad_V: Tensor,
) -> None:
    """Adds what a chunk of C rows contributes; `p_CV` is the gradient of its logits."""
    bias_grad_V += p_CV.sum(0)
    p_CV = p_CV.to(rows_CD.dtype)
    hidden_grad_CD.copy_(p_CV @ weight_VD)
    if rows_CD.dtype == weight_grad_VD.dtype:
        weight_grad_VD.addmm_(p_CV.t(), rows_CD)
    else:
        weight_grad_VD += p_CV.t() @ rows_CD


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
