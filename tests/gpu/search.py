"""Exact search by matrix products on any device, where there is no faiss.

Shapes: Q queries, N passages of a block, K results of a query, V vocabulary.
"""

import torch
from torch import Tensor

from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views

BLOCK = 4096


def search(
    queries: Views, passages: Views, k: int, device: torch.device, dtype: torch.dtype, block: int = BLOCK
) -> tuple[Tensor, Tensor]:
    """The k best passages of each query by dense vectors, weights over the vocabulary, or both added.

    Returns:
        Scores, and rows of the passages, int64, the best first; [Q, K] each.
    """
    own = _matrix(queries, slice(None)).to(device, dtype)
    count = len(passages.dense_ND if passages.dense_ND is not None else passages.lexical)  # type: ignore[arg-type]
    scores_QK, rows_QK = own.new_empty(len(own), 0), torch.empty(len(own), 0, dtype=torch.int64, device=device)
    for at in range(0, count, block):
        part = _matrix(passages, slice(at, at + block)).to(device, dtype)
        places_N = torch.arange(at, at + len(part), device=device).expand(len(own), -1)
        scores_QK, rows_QK = torch.cat([scores_QK, own @ part.t()], 1), torch.cat([rows_QK, places_N], 1)
        scores_QK, kept_QK = scores_QK.topk(min(k, scores_QK.shape[1]), 1)
        rows_QK = rows_QK.gather(1, kept_QK)
    return scores_QK, rows_QK


def _matrix(views: Views, rows: slice) -> Tensor:
    """Dense and lexical vectors of some texts side by side, float32: their inner product is the sum of both scores."""
    parts = [] if views.dense_ND is None else [torch.from_numpy(views.dense_ND[rows].copy())]
    if views.lexical is not None:
        parts.append(dense_rows(views.lexical, rows))
    return torch.cat(parts, 1)


def dense_rows(rows: SparseRows, some: slice = slice(None)) -> Tensor:
    """Some rows with their zeros, float32 [N, V]."""
    start, stop, _ = some.indices(len(rows))
    chosen = rows.slice(start, stop)
    offsets, terms = torch.from_numpy(chosen.offsets), torch.from_numpy(chosen.terms.copy())
    row = torch.arange(len(chosen)).repeat_interleave(offsets.diff())
    filled = torch.zeros(len(chosen), chosen.width)
    filled[row, terms.long()] = torch.from_numpy(chosen.weights.copy())
    return filled
