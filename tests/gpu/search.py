"""Exact search by matrix products on any device, where there is no faiss; and the measures of what it finds.

Shapes: Q queries, N passages of a block, K results of a query, D width, V vocabulary.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views

CUTOFF = 10
BLOCK = 4096


def best(queries: Tensor, blocks: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """The k passages of highest inner product for each query, the best first; fewer if there are fewer.

    Args:
        queries: [Q, D]. blocks: passages in order, [N, D] each; all on one device and of one type.

    Returns:
        Scores, and rows over all blocks, int64; [Q, K] each.
    """
    scores_QK = queries.new_empty(len(queries), 0)
    rows_QK = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    first = 0
    for block in blocks:
        places_N = torch.arange(first, first + len(block), device=queries.device).expand(len(queries), -1)
        scores_QK = torch.cat([scores_QK, queries @ block.t()], 1)
        rows_QK = torch.cat([rows_QK, places_N], 1)
        scores_QK, kept_QK = scores_QK.topk(min(k, scores_QK.shape[1]), 1)
        rows_QK = rows_QK.gather(1, kept_QK)
        first += len(block)
    return scores_QK, rows_QK


def search(queries: Views, passages: Views, k: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """`best` of all that is scored of two sides' views: dense vectors, weights over the vocabulary, or both added."""
    count = len(_first(passages))
    blocks = (_matrix(passages, slice(at, at + BLOCK)).to(device, dtype) for at in range(0, count, BLOCK))
    return best(_matrix(queries, slice(None)).to(device, dtype), blocks, k)


def _first(views: Views) -> Sequence[object]:
    return views.dense_ND if views.dense_ND is not None else views.lexical  # type: ignore[return-value]


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


def measures(found_QK: Tensor, relevant: Sequence[set[int]]) -> dict[str, float]:
    """nDCG@10 and RR@10, means over queries; a relevant passage gains 1, all others 0.

    Args:
        found_QK: rows, the best first. relevant: the relevant rows of each query; one without any counts 0.
    """
    gains, firsts = 0.0, 0.0
    for found, wanted in zip(found_QK[:, :CUTOFF].tolist(), relevant, strict=True):
        places = [place for place, row in enumerate(found, 1) if row in wanted]
        ideal = sum(_discount(place) for place in range(1, min(len(wanted), CUTOFF) + 1))
        gains += sum(map(_discount, places)) / ideal if ideal else 0.0
        firsts += 1 / places[0] if places else 0.0
    return {"nDCG@10": gains / len(relevant), "RR@10": firsts / len(relevant)}


def _discount(place: int) -> float:
    return 1 / float(torch.log2(torch.tensor(1.0 + place, dtype=torch.float64)))
