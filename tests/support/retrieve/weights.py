"""Sparse collections, and lexical scores and rankings by their definition."""

import numpy as np

from midmask.retrieve.sparse import SparseRows
from tests.support.retrieve.vectors import ids

COUNT, WIDTH = 150, 40


def lexical_score(query: SparseRows, at: int, passages: SparseRows, row: int) -> float:
    """By the definition: the terms that both have, ascending, in Python's float64."""
    theirs = dict(zip(*(part.tolist() for part in passages.row(row)), strict=True))
    total = 0.0
    for term, weight in zip(*(part.tolist() for part in query.row(at)), strict=True):
        total += weight * theirs.get(term, 0.0)
    return total


def ranking(scores, k):
    """(score in float32, row), ordered by score descending, id ascending."""
    names, rounded = ids(len(scores)).to_pylist(), [np.float32(score) for score in scores]
    best = sorted(range(len(scores)), key=lambda row: (-rounded[row], names[row]))[:k]
    return [(rounded[row], row) for row in best]


def pairs(found):
    return [list(zip(scores, rows.tolist(), strict=True)) for scores, rows in zip(*found, strict=True)]


def sparse_table(draw: np.random.Generator, rows: int, share: float, whole: bool) -> np.ndarray:
    table = np.where(draw.random((rows, WIDTH)) < share, draw.standard_normal((rows, WIDTH)) * 3, 0)
    return (np.round(table) if whole else table).astype(np.float32)
