"""The workers of one training run, as torch.distributed sees them; without a process group, a world of one."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def _is_alone() -> bool:
    return not (dist.is_available() and dist.is_initialized())


def rank() -> int:
    return 0 if _is_alone() else dist.get_rank()


def size() -> int:
    return 1 if _is_alone() else dist.get_world_size()


def all_sum(tensor: Tensor) -> Tensor:
    """The sum over all workers, same shape; no gradient flows. The argument is left as it is."""
    total = tensor.detach().clone()
    if not _is_alone():
        dist.all_reduce(total)
    return total


def least(number: int) -> int:
    """The minimum of a number over all workers."""
    if _is_alone():
        return number
    value = torch.tensor(number, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(value, dist.ReduceOp.MIN)
    return int(value)


def all_sum_with_gradient(tensor: Tensor) -> Tensor:
    """The sum over all workers, same shape. The gradient of every worker's loss reaches what each has put in."""
    if _is_alone():
        return tensor
    total: Tensor = _Sum.apply(tensor)  # type: ignore[no-untyped-call]
    return total


def gather_rows(rows_BD: Tensor) -> Tensor:
    """All workers' rows in rank order, [sum of B, D]. Workers may hold different numbers of rows.

    The gradient of every worker's loss reaches the rows of the worker that owns them, as it would in one process.
    """
    if _is_alone():
        return rows_BD
    gathered: Tensor = _Gather.apply(rows_BD, _row_counts(rows_BD))  # type: ignore[no-untyped-call]
    return gathered


def local_positions(rows_BD: Tensor) -> Tensor:
    """Positions of this worker's rows among those of `gather_rows`; int64, [B]."""
    first = 0 if _is_alone() else sum(_row_counts(rows_BD)[: rank()])
    return torch.arange(first, first + len(rows_BD), device=rows_BD.device)


def _row_counts(rows_BD: Tensor) -> list[int]:
    mine = torch.tensor([len(rows_BD)], device=rows_BD.device)
    counts = [torch.zeros_like(mine) for _ in range(size())]
    dist.all_gather(counts, mine)
    return [int(count) for count in counts]


class _Gather(torch.autograd.Function):
    """all_gather forward; backward sums the gradients of all workers and keeps its rows."""

    @staticmethod
    def forward(ctx: Any, rows_BD: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        padded = rows_BD.new_zeros(max(counts), *rows_BD.shape[1:])
        padded[: len(rows_BD)] = rows_BD
        pieces = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(pieces, padded)
        return torch.cat([piece[:count] for piece, count in zip(pieces, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous().clone()
        dist.all_reduce(total)
        start = sum(ctx.counts[: rank()])
        return total[start : start + ctx.counts[rank()]], None


class _Sum(torch.autograd.Function):
    """all_reduce forward and backward: each worker's loss depends on what every worker has put in."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return all_sum(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return all_sum(grad.contiguous())
