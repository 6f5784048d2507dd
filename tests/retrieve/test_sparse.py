"""Sparse rows, and how they lie in files."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.retrieve.sparse import HEADER, SparseRows, packed_size, read_lengths, read_rows, write_rows


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


def written(rows: SparseRows) -> bytes:
    stream = io.BytesIO()
    write_rows(stream, rows)
    return stream.getvalue()


def same(left: SparseRows, right: SparseRows) -> bool:
    arrays = [(left.offsets, right.offsets), (left.terms, right.terms), (left.weights, right.weights)]
    return left.width == right.width and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


@st.composite
def tables(draw):
    """Dense tables with a share of zeros; widths on both sides of a power of two, rows of one length among them."""
    seed, count = draw(st.integers(0, 10_000)), draw(st.integers(0, 40))
    width = draw(st.sampled_from([1, 2, 3, 31, 32, 33, 255, 256, 257, 3000]))
    generator = np.random.default_rng(seed)
    filled = generator.random((count, width)) < draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    return np.where(filled, generator.standard_normal((count, width)), 0).astype(np.float32)


@settings(max_examples=60)
@given(tables())
def test_rows_come_back_as_they_were(table):
    rows = SparseRows.top(table, None)
    packed = written(rows)
    assert same(read_rows(io.BytesIO(packed)), rows)
    assert packed == written(rows)
    bits, lengths = max(1, int(np.ceil(np.log2(table.shape[1])))), np.diff(rows.offsets)
    spread = int(lengths.max(initial=0) - lengths.min(initial=10**9)) if len(lengths) else 0
    sizes = [32 * len(rows.terms), bits * len(rows.terms), spread.bit_length() * len(rows)]
    assert len(packed) == HEADER.size + sum(-(-size // 8) for size in sizes)


@settings(max_examples=60)
@given(tables(), st.sampled_from([1, 2, 40]))
def test_the_bytes_of_fewer_words_are_known_without_reading_any(table, kept):
    rows = SparseRows.top(table, None)
    lengths, width = read_lengths(io.BytesIO(written(rows)))
    assert packed_size(np.minimum(lengths, kept), width) == len(written(rows.heaviest(kept)))


def test_more_numbers_than_are_packed_at_once_come_back():
    generator = np.random.default_rng(0)
    rows = SparseRows.top(generator.standard_normal((700, 30_522)).astype(np.float32), 260)
    assert len(rows.terms) > 2 * (1 << 16)
    assert same(read_rows(io.BytesIO(written(rows))), rows)


GOOD = written(SparseRows.top(np.random.default_rng(2).standard_normal((5, 40)).astype(np.float32), 7))
BAD = {
    "empty": (b"", "no file of lexical views"),
    "foreign": (b"\x93NUMPY" + GOOD[6:], "no file of lexical views"),
    "header cut": (GOOD[:50], "no file of lexical views"),
    "cut": (GOOD[:-1], "cut short or joined"),
    "joined": (GOOD + GOOD, "cut short or joined"),
    "changed": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], "checksum is wrong"),
    "newer": (GOOD[:16] + b"\x02" + GOOD[17:], "version 2; this midmask reads version 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_whole_is_refused(name: str):
    content, message = BAD[name]
    with pytest.raises(UserError, match=message):
        read_rows(io.BytesIO(content))
