"""Sparse rows, and how they lie in files."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from midmask.errors import UserError
from midmask.retrieve.sparse import HEADER, heaviest, packed_size, read_lengths, read_rows, row_of, top_rows, write_rows


def entries(rows: csr_array) -> list[list[tuple[int, float]]]:
    found = [row_of(rows, index) for index in range(rows.shape[0])]
    return [list(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in found]


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([None, 1, 2, 5, 12, 30]))
def test_the_largest_weights_stay_of_equal_ones_the_smaller_terms(seed, k):
    weights_NV = np.random.default_rng(seed).integers(-3, 4, (9, 12)).astype(np.float32)
    expected = []
    for row in weights_NV.tolist():
        kept = sorted(range(12), key=lambda term: (-row[term], term))[:k]
        expected.append([(term, row[term]) for term in sorted(kept) if row[term] != 0])
    assert entries(top_rows(weights_NV, k)) == expected


def test_a_weight_that_is_no_number_is_refused_by_row():
    table = np.zeros((4, 6), np.float32)
    table[1, 5] = -np.inf
    for k in (None, 2):
        with pytest.raises(UserError, match="row 1: the weight of term 5 is -inf"):
            top_rows(table, k)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([1, 3, 12]))
def test_the_heaviest_of_rows_are_the_largest_of_their_table(seed, k):
    weights_NV = np.random.default_rng(seed).integers(0, 4, (9, 12)).astype(np.float32)
    assert entries(heaviest(top_rows(weights_NV, None), k)) == entries(top_rows(weights_NV, k))


def written(rows: csr_array) -> bytes:
    stream = io.BytesIO()
    write_rows(stream, rows)
    return stream.getvalue()


def same(left: csr_array, right: csr_array) -> bool:
    arrays = [(left.indptr, right.indptr), (left.indices, right.indices), (left.data, right.data)]
    return left.shape == right.shape and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


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
    rows = top_rows(table, None)
    packed = written(rows)
    assert same(read_rows(io.BytesIO(packed)), rows)
    assert packed == written(rows)
    bits, lengths = max(1, int(np.ceil(np.log2(table.shape[1])))), np.diff(rows.indptr)
    spread = int(lengths.max(initial=0) - lengths.min(initial=10**9)) if len(lengths) else 0
    sizes = [32 * rows.nnz, bits * rows.nnz, spread.bit_length() * len(table)]
    assert len(packed) == HEADER.size + sum(-(-size // 8) for size in sizes)


@settings(max_examples=60)
@given(tables(), st.sampled_from([1, 2, 40]))
def test_the_bytes_of_fewer_words_are_known_without_reading_any(table, kept):
    rows = top_rows(table, None)
    lengths, width = read_lengths(io.BytesIO(written(rows)))
    assert packed_size(np.minimum(lengths, kept), width) == len(written(heaviest(rows, kept)))


def test_more_numbers_than_are_packed_at_once_come_back():
    generator = np.random.default_rng(0)
    rows = top_rows(generator.standard_normal((700, 30_522)).astype(np.float32), 260)
    assert rows.nnz > 2 * (1 << 16)
    assert same(read_rows(io.BytesIO(written(rows))), rows)


GOOD = written(top_rows(np.random.default_rng(2).standard_normal((5, 40)).astype(np.float32), 7))
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
