"""Fused vocabulary heads: a linear layer over the vocabulary together with what is made of its logits, which never
exist all at once.

Shapes: R rows that carry a label, D width, V vocabulary, B rows of a batch, L tokens, C rows or columns of a chunk.
"""

from typing import Any

import torch
from torch import Tensor
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


def linear_column_max(hidden_BLD: Tensor, weight_VD: Tensor, bias_V: Tensor, pooled_BL: Tensor) -> Tensor:
    """The maximum over positions where `pooled_BL` (bool) of weight · hidden + bias; shape [B, V], float32 at least.

    A row with no pooled position gives 0 and no gradient. The gradient goes to one position per row and vocabulary
    entry.
    """
    logits_BLV = torch.nn.functional.linear(hidden_BLD, weight_VD, bias_V)
    highest_BV = logits_BLV.masked_fill(~pooled_BL[:, :, None], -torch.inf).max(1).values
    highest_BV = highest_BV.to(torch.promote_types(highest_BV.dtype, torch.float32))
    return highest_BV.masked_fill(~pooled_BL.any(1, keepdim=True), 0.0)
