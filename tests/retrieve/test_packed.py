import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.errors import UserError
from midmask.retrieve.packed import HEADER, packed_size, read_lengths, read_rows, write_rows
from midmask.retrieve.sparse import SparseRows


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


def bad_files() -> dict[str, tuple[bytes, str]]:
    good = written(SparseRows.top(np.random.default_rng(2).standard_normal((5, 40)).astype(np.float32), 7))
    flipped = bytearray(good)
    flipped[-3] ^= 1
    return {
        "empty": (b"", "no file of lexical views"),
        "foreign": (b"\x93NUMPY" + good[6:], "no file of lexical views"),
        "header cut": (good[:50], "no file of lexical views"),
        "cut": (good[:-1], "cut short or joined"),
        "joined": (good + good, "cut short or joined"),
        "changed": (bytes(flipped), "checksum is wrong"),
        "newer": (good[:16] + b"\x02" + good[17:], "version 2; this midmask reads version 1"),
    }


@pytest.mark.parametrize("name", bad_files())
def test_a_file_that_is_not_whole_is_refused(name: str):
    content, message = bad_files()[name]
    with pytest.raises(UserError, match=message):
        read_rows(io.BytesIO(content))
