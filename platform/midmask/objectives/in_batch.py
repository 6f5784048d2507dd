"""In-batch contrast: softmax cross-entropy of vectors against those of all workers. Shared by all contrastive methods.

Shapes: Q rows of this worker, N rows of all workers, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.batch import Part
from midmask.objectives import distributed as world


def in_batch_part(
    query_QD: Tensor,
    gathered_ND: Tensor,
    targets_Q: Tensor,
    *,
    temperature: float,
    excluded_QN: Tensor | None = None,
    weight: float = 1.0,
) -> Part:
    """The sum over queries of -log softmax(query · gathered / temperature)[target], in full precision.

    Args:
        targets_Q: int64, the row of `gathered_ND` that belongs to each query.
        excluded_QN: bool, what is no candidate for a query; the target must not be.
    """
    with torch.autocast(query_QD.device.type, enabled=False):
        scores_QN = query_QD @ gathered_ND.t() / temperature
    return cross_entropy_part(scores_QN, targets_Q, excluded_QN, weight)


def pairs_part(query_BD: Tensor, passage_BD: Tensor, *, temperature: float, weight: float = 1.0) -> Part:
    """`in_batch_part` of queries that belong to this worker's passages row by row, against those of all workers."""
    local_B = world.local_positions(passage_BD)
    return in_batch_part(query_BD, world.gather_rows(passage_BD), local_B, temperature=temperature, weight=weight)


def cross_entropy_part(scores_QN: Tensor, targets_Q: Tensor, excluded_QN: Tensor | None, weight: float = 1.0) -> Part:
    """The sum over queries of -log softmax(scores)[target]; `excluded_QN` as in `in_batch_part`."""
    if excluded_QN is not None:
        scores_QN = scores_QN.masked_fill(excluded_QN, -torch.inf)
    total = F.cross_entropy(scores_QN, targets_Q, reduction="sum")
    return Part(total, torch.tensor(len(scores_QN), device=scores_QN.device), weight)
