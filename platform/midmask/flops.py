"""FLOPs of whatever torch runs, operation by operation: those of matrix products, two for a multiplication with an
addition.

    a linear layer                       6 x weights x rows in training (2 forward, 4 backward)
    attention, of a layer                12 x length x width x tokens; that a fused backward pass computes its scores
                                         again does not count
    column maximum (`midmask.heads`)     2 x V x width x positions forward, 4 x V x width x texts backward: one position
                                         wins an entry
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

FUSED_ATTENTION = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")


def flop_counter() -> FlopCounterMode:
    """Torch's counter, a context manager; `get_total_flops()` may be asked at any time."""
    return FlopCounterMode(display=False, custom_mapping=_formulas())


def _formulas() -> dict[Any, Callable[..., int]]:
    """What the counter of torch lacks or counts otherwise; arguments are shapes."""

    def forward(q: Any, k: Any, v: Any, *rest: Any, **named: Any) -> int:
        rows, heads, length, width = q
        return int(4 * rows * heads * length * k[2] * width)

    def backward(grad: Any, q: Any, k: Any, v: Any, *rest: Any, **named: Any) -> int:
        return 2 * forward(q, k, v)

    def weighted_sums(table: Any, rows: Any, *rest: Any, **named: Any) -> int:
        return int(2 * torch.Size(rows).numel() * table[1])

    def product_added(total: Any, a: Any, b: Any, *rest: Any, **named: Any) -> int:
        return int(2 * a[0] * a[1] * b[1])

    aten = torch.ops.aten
    formulas: dict[Any, Callable[..., int]] = {
        aten.addmm_: product_added,
        aten._embedding_bag: weighted_sums,
        aten._embedding_bag_forward_only: weighted_sums,
    }
    for name in FUSED_ATTENTION:
        formulas[getattr(aten, f"_scaled_dot_product_{name}")] = forward
        formulas[getattr(aten, f"_scaled_dot_product_{_backward_of(name)}")] = backward
    return formulas


def _backward_of(name: str) -> str:
    head, separator, tail = name.partition("_for_cpu")
    return f"{head}{separator}{tail}_backward"
