"""Fused vocabulary heads: a linear layer over the vocabulary fused with the function of its logits, which are never in
memory all at once.

Shapes: R rows that carry a label, D width, V vocabulary, B rows of a batch, L tokens, C rows of a chunk, T vocabulary
entries of a tile.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_VALUES = {"cpu": 2**24, "cuda": 2**28}
"""Logits held at a time by the cross-entropy: on a CPU, the least at which it is fastest; on a GPU, not measured."""
TILE_VALUES = {"cpu": 2**21, "cuda": 2**28}
"""Logits held at a time by the column maximum: on a CPU, a tile that stays in the cache; on a GPU, not measured."""


def linear_cross_entropy(hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor, labels_R: Tensor) -> Tensor:
    """The sum over rows of -log softmax(weight · hidden + bias)[label]; shape [].

    Logits exist for a chunk of rows at a time. Gradients are made in the forward pass, while the chunk is there, and
    scaled in the backward pass: three matrix products in all, as many as with stored logits. The softmax is in float32
    at least; the products follow autocast.
    """
    tensors, dtype = (hidden_RD, weight_VD, bias_V), _product_type(hidden_RD)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    total: Tensor = _LinearCrossEntropy.apply(*tensors, labels_R, dtype, learns)  # type: ignore[no-untyped-call]
    return total


def linear_column_max(hidden_BLD: Tensor, weight_VD: Tensor, bias_V: Tensor, pooled_BL: Tensor) -> Tensor:
    """The maximum over positions where `pooled_BL` (bool) of weight · hidden + bias; shape [B, V], float32 at least.

    A row with no pooled position gives 0 and no gradient. The gradient goes to one position per row and vocabulary
    entry, so that the backward pass has B * V terms, not B * L * V: no matrix product but two weighted sums of rows.
    Logits exist for a tile of the vocabulary at a time; their products follow autocast.
    """
    tensors, dtype = (hidden_BLD, weight_VD, bias_V), _product_type(hidden_BLD)
    highest_BV: Tensor = _LinearColumnMax.apply(*tensors, pooled_BL, dtype)  # type: ignore[no-untyped-call]
    return highest_BV


def _product_type(hidden: Tensor) -> torch.dtype:
    """The type in which logits are computed."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


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
        return (*(tensor * grad.to(tensor.dtype) if needed else None for tensor, needed in saved), None, None, None)


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


class _LinearColumnMax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_BLD: Tensor, weight_VD: Tensor, bias_V: Tensor, pooled_BL: Tensor, dtype: torch.dtype
    ) -> Tensor:
        (rows, length, _), entries = hidden_BLD.shape, len(weight_VD)
        source_BL = _source_rows(pooled_BL)
        highest_BV = bias_V.new_empty((rows, entries), dtype=torch.promote_types(bias_V.dtype, torch.float32))
        winner_BV = source_BL.new_empty((rows, entries), dtype=torch.int32)
        step = max(1, TILE_VALUES[hidden_BLD.device.type] // max(1, rows * length))
        with torch.autocast(hidden_BLD.device.type, enabled=False):
            hidden_MD = hidden_BLD.flatten(0, 1)[source_BL.flatten()].to(dtype)
            weight, bias = weight_VD.to(dtype), bias_V.to(dtype)
            space = hidden_MD.new_empty(len(hidden_MD) * min(step, entries))
            for at in range(0, entries, step):
                tile = slice(at, min(at + step, entries))
                logits_MT = space[: len(hidden_MD) * (tile.stop - at)].view(len(hidden_MD), -1)
                torch.addmm(bias[tile], hidden_MD, weight[tile].t(), out=logits_MT)
                highest_BV[:, tile], position_BT = logits_MT.view(rows, length, -1).max(1)
                winner_BV[:, tile] = source_BL.gather(1, position_BT)
        pools_B1 = pooled_BL.any(1, keepdim=True)
        ctx.save_for_backward(hidden_BLD, weight_VD, winner_BV, pools_B1)
        return highest_BV.masked_fill_(~pools_B1, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BV: Tensor) -> tuple[Tensor | None, ...]:
        hidden_BLD, weight_VD, winner_BV, pools_B1 = ctx.saved_tensors
        hidden_MD, grad_BV = hidden_BLD.flatten(0, 1), grad_BV.masked_fill(~pools_B1, 0.0)
        grads: list[Tensor | None] = [None] * 5
        if ctx.needs_input_grad[0]:
            sums_MD = _sums_by_winner(weight_VD, winner_BV, grad_BV, len(hidden_MD))
            grads[0] = sums_MD.view_as(hidden_BLD).to(hidden_BLD.dtype)
        if ctx.needs_input_grad[1]:
            grads[1] = _sum_rows(hidden_MD, winner_BV.t(), grad_BV.t(), None).to(weight_VD.dtype)
        if ctx.needs_input_grad[2]:
            grads[2] = grad_BV.sum(0)
        return tuple(grads)


def _source_rows(pooled_BL: Tensor) -> Tensor:
    """The position that is read in the place of each position, as a row of the flattened batch, int64, [B, L].

    That is itself if it is pooled, else the first pooled one of its row: a second time the same logit raises no
    maximum, and saves a pass over the logits that would hide some of them.
    """
    rows, length = pooled_BL.shape
    positions_L = torch.arange(length, device=pooled_BL.device)
    source_BL = torch.where(pooled_BL, positions_L, pooled_BL.int().argmax(1, keepdim=True))
    return source_BL + length * torch.arange(rows, device=pooled_BL.device)[:, None]


def _sums_by_winner(weight_VD: Tensor, winner_BV: Tensor, grad_BV: Tensor, positions: int) -> Tensor:
    """For each of the flattened positions, the gradient-weighted sum of the vocabulary's rows that it won."""
    ordered, order = winner_BV.flatten().sort()
    starts_M = torch.searchsorted(ordered, torch.arange(positions, device=ordered.device))
    return _sum_rows(weight_VD, order % len(weight_VD), grad_BV.flatten()[order], starts_M)


def _sum_rows(table: Tensor, rows: Tensor, weights: Tensor, starts: Tensor | None) -> Tensor:
    """Sums of rows of `table`, each times its weight, in the weights' type: one for each row of `rows`, or for each
    stretch of a flat `rows` that begins at `starts`."""
    return F.embedding_bag(
        rows.contiguous(), table.to(weights.dtype), starts, mode="sum", per_sample_weights=weights.contiguous()
    )
