"""Lexical views: rows that are nearly all zeros, in memory (scipy's CSR, terms ascending in each row) and in a file of
as few bytes as the papers count.

DupMAE counts "384+260" as 768 floats a passage: 384 of the dense view, and 260 entries of 32 + 15 bits, a float32 and
ceil(log2 V) bits of index each. The file, all little-endian:

    magic b"midmask lexical\\0", version                         16 bytes, uint32
    rows, entries, width, shortest row, bits of a length         uint64 x 5
    CRC-32 of what follows                                       uint32
    weights                                                      float32 x entries
    terms                                                        packed, ceil(log2 width) bits each
    lengths of the rows less the shortest                        packed; no bits where all rows have one length
"""

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from midmask.core.arrays import Floats, Ints
from midmask.errors import UserError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def top_rows(weights_NV: Floats, k: int | None) -> "csr_array":
    """The k largest weights of each row (by value, not by magnitude), less zeros; of equal ones at the cut, those
    of smaller terms stay. k none: all that are not zero.
    """
    kept_NV = weights_NV != 0
    if k is not None and k < weights_NV.shape[1]:
        kept_NV &= _mark_largest(weights_NV, k)
    rows, terms = np.nonzero(kept_NV)
    offsets = np.searchsorted(rows, np.arange(len(weights_NV) + 1))
    return _as_rows(weights_NV[rows, terms].astype(np.float32), terms, offsets, weights_NV.shape[1])


def heaviest(rows: "csr_array", k: int) -> "csr_array":
    """The k largest weights of each row, as `top_rows` chooses them."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    by_weight = np.lexsort((rows.indices, -rows.data, row))
    kept = np.sort(by_weight[np.arange(len(row)) - rows.indptr[row] < k])
    offsets = np.searchsorted(row[kept], np.arange(rows.shape[0] + 1))
    return _as_rows(rows.data[kept], rows.indices[kept], offsets, rows.shape[1])


def _as_rows(weights: Floats, terms: Ints, offsets: Ints, width: int) -> "csr_array":
    """Rows of a block, whose entries 32 bits can count; scipy would keep, and compute with, 64."""
    from scipy.sparse import csr_array  # here: only who reads or makes lexical views needs scipy

    arrays = weights, terms.astype(np.int32), offsets.astype(np.int32)
    return csr_array(arrays, shape=(len(offsets) - 1, width))


def stacked(parts: "Sequence[csr_array]") -> "csr_array":
    """The rows of several blocks, one after the other; at least one block."""
    from scipy.sparse import vstack

    return vstack(parts, format="csr")


def row_of(rows: "csr_array", index: int) -> tuple[NDArray[np.int32], Floats]:
    """Terms and weights of one row."""
    entries = slice(rows.indptr[index], rows.indptr[index + 1])
    return rows.indices[entries], rows.data[entries]


def _mark_largest(weights_NV: Floats, k: int) -> NDArray[np.bool_]:
    """Marks the k largest values of each row; of equal ones at the cut, the first."""
    least_N1 = np.partition(weights_NV, -k, axis=1)[:, -k, None]
    above_NV, equal_NV = weights_NV > least_N1, weights_NV == least_N1
    room_N1 = k - above_NV.sum(axis=1, keepdims=True)
    crowded = np.flatnonzero(equal_NV.sum(axis=1, keepdims=True) > room_N1)
    equal_NV[crowded] &= equal_NV[crowded].cumsum(axis=1) <= room_N1[crowded]
    kept_NV: NDArray[np.bool_] = above_NV | equal_NV
    return kept_NV


MAGIC = b"midmask lexical\0"
VERSION = 1
HEADER = struct.Struct("<16sI5QI")

PACKED_AT_ONCE = 1 << 16
"""Numbers spread to bits at once, 32 bytes each; a multiple of 8, so that every part ends with a whole byte."""


def pack_rows(rows: "csr_array") -> bytes:
    """The file of some rows; equal rows give equal bytes."""
    lengths, (count, width) = np.diff(rows.indptr), rows.shape
    shortest = int(lengths.min()) if count else 0
    length_bits = int(lengths.max(initial=shortest) - shortest).bit_length()
    packed = _pack(rows.indices, _term_bits(width)) + _pack(lengths - shortest, length_bits)
    body: bytes = rows.data.astype("<f4").tobytes() + packed
    counts = (count, rows.nnz, width, shortest, length_bits)
    return HEADER.pack(MAGIC, VERSION, *counts, zlib.crc32(body)) + body


def unpack_rows(file: bytes) -> "csr_array":
    """The rows of a file that `pack_rows` made.

    Raises:
        UserError: if it is no such file, or changed.
    """
    header, body = file[: HEADER.size], file[HEADER.size :]
    if len(header) < HEADER.size or HEADER.unpack(header)[:2] != (MAGIC, VERSION):
        raise UserError(f"no file of lexical views of version {VERSION}: it begins with {header[:20]!r}; encode again")
    *_, count, entries, width, shortest, length_bits, checksum = HEADER.unpack(header)
    if zlib.crc32(body) != checksum:
        raise UserError("lexical views whose checksum is wrong: the file was cut short or changed; encode again")
    term_bits = _term_bits(width)
    sizes = [4 * entries, _bytes(entries, term_bits)]
    lengths = shortest + _unpack(body[sizes[0] + sizes[1] :], count, length_bits)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    terms = _unpack(body[sizes[0] : sizes[0] + sizes[1]], entries, term_bits)
    weights = np.frombuffer(body[: sizes[0]], dtype="<f4").astype(np.float32)
    return _as_rows(weights, terms, offsets, width)


def _term_bits(width: int) -> int:
    return max(1, (width - 1).bit_length())


def _bytes(count: int, bits: int) -> int:
    return (count * bits + 7) // 8


def _pack(numbers: NDArray[np.integer], bits: int) -> bytes:
    """The lowest `bits` bits of each number, lowest first, without gaps."""
    parts = []
    for at in range(0, len(numbers), PACKED_AT_ONCE):
        octets = numbers[at : at + PACKED_AT_ONCE].astype("<u4").view(np.uint8).reshape(-1, 4)
        parts.append(np.packbits(np.unpackbits(octets, axis=1, bitorder="little")[:, :bits], bitorder="little"))
    return b"".join(part.tobytes() for part in parts)


def _unpack(packed: bytes, count: int, bits: int) -> NDArray[np.int64]:
    numbers = np.zeros(count, dtype=np.int64)
    octets = np.frombuffer(packed, dtype=np.uint8)
    for at in range(0, count if bits else 0, PACKED_AT_ONCE):
        some = min(PACKED_AT_ONCE, count - at)
        mine = octets[at * bits // 8 : _bytes(at + some, bits)]
        table = np.zeros((some, 32), dtype=np.uint8)
        table[:, :bits] = np.unpackbits(mine, count=some * bits, bitorder="little").reshape(some, bits)
        numbers[at : at + some] = np.packbits(table, axis=1, bitorder="little").view("<u4")[:, 0]
    return numbers
