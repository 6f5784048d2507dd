"""In-batch contrast: softmax cross-entropy of vectors against those of all workers. Shared by all contrastive methods.

Shapes: Q rows of this worker, N rows of all workers, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from midmask.core.batch import Part


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


def cross_entropy_part(scores_QN: Tensor, targets_Q: Tensor, excluded_QN: Tensor | None, weight: float = 1.0) -> Part:
    """The sum over queries of -log softmax(scores)[target]; `excluded_QN` as in `in_batch_part`."""
    if excluded_QN is not None:
        scores_QN = scores_QN.masked_fill(excluded_QN, -torch.inf)
    total = F.cross_entropy(scores_QN, targets_Q, reduction="sum")
    return Part(total, torch.tensor(len(scores_QN), device=scores_QN.device), weight)


def uniformity(vectors_BD: Tensor) -> Tensor:
    """log of the mean of exp(-2 |x - y|²) over pairs of unit vectors of different rows; shape [].

    0: all alike; -4 at the lowest, when spread evenly over a sphere of many dimensions (Wang & Isola 2020).
    """
    if len(vectors_BD) < 2:
        return vectors_BD.new_zeros(())
    return torch.pdist(F.normalize(vectors_BD.float(), dim=1)).square().mul(-2).exp().mean().log()


def agreement(query_BD: Tensor, passage_BD: Tensor) -> dict[str, Tensor]:
    """How well the vectors of pairs belong together, among this worker's rows; shape [] each.

    alignment: mean |x - y|² of the unit vectors of a pair, 0 to 4 (Wang & Isola 2020); uniformity: of the second
    vectors; in_batch_accuracy: share of rows whose own partner has the highest dot product.
    """
    query_BD, passage_BD = query_BD.float(), passage_BD.float()
    distance_B = (F.normalize(query_BD, dim=1) - F.normalize(passage_BD, dim=1)).square().sum(1)
    best_B = (query_BD @ passage_BD.t()).argmax(1)
    right_B = best_B == torch.arange(len(best_B), device=best_B.device)
    return {
        "alignment": distance_B.mean(),
        "uniformity": uniformity(passage_BD),
        "in_batch_accuracy": right_B.float().mean(),
    }
