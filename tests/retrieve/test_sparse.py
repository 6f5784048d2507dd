import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.retrieve.sparse import SparseRows


def rows_of(*rows: dict[int, float], width: int = 10) -> SparseRows:
    offsets = np.cumsum([0, *map(len, rows)])
    terms = np.array([term for row in rows for term in row], np.int32)
    return SparseRows(offsets, terms, np.array([row[term] for row in rows for term in row], np.float32), width)


def entries(rows: SparseRows) -> list[list[tuple[int, float]]]:
    found = [rows.row(index) for index in range(len(rows))]
    return [list(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in found]


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([None, 1, 2, 5, 12, 30]))
def test_the_largest_weights_stay_of_equal_ones_the_smaller_terms(seed, k):
    weights_NV = np.random.default_rng(seed).integers(-3, 4, (9, 12)).astype(np.float32)
    expected = []
    for row in weights_NV.tolist():
        kept = sorted(range(12), key=lambda term: (-row[term], term))[:k]
        expected.append([(term, row[term]) for term in sorted(kept) if row[term] != 0])
    assert entries(SparseRows.top(weights_NV, k)) == expected


def test_a_weight_that_is_no_number_is_refused_by_row():
    with pytest.raises(UserError, match="row 2: the weight of term 3 is nan"):
        rows_of({0: 1.0}, {}, {1: 1.0, 3: np.nan})
    table = np.zeros((4, 6), np.float32)
    table[1, 5] = -np.inf
    for k in (None, 2):
        with pytest.raises(UserError, match="row 1: the weight of term 5 is -inf"):
            SparseRows.top(table, k)


def test_arrays_that_describe_no_rows_are_refused():
    with pytest.raises(ValueError, match="row 1 do not ascend"):
        rows_of({8: 1.0}, {3: 1.0, 2: 1.0})
    with pytest.raises(ValueError, match="reach from 3 to 10; the width is 10"):
        rows_of({3: 1.0, 10: 1.0})
    with pytest.raises(ValueError, match="float64"):
        SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), 1)
    with pytest.raises(ValueError, match="3 entries by the offsets, 2 terms"):
        SparseRows(np.array([0, 3]), np.zeros(2, np.int32), np.zeros(2, np.float32), 4)
    assert len(rows_of({}, {9: 1.0}, {0: 1.0}, {}, {})) == 5
