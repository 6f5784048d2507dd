"""Lexical views: rows that are nearly all zeros, in memory and in a file of as few bytes as the papers count.

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
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from midmask.core.arrays import Floats
from midmask.errors import UserError


@dataclass(frozen=True)
class SparseRows:
    """N rows over a vocabulary; row i has the entries `offsets[i]` .. `offsets[i + 1]`.

    Args:
        offsets: int64 [N + 1], from 0, never falling.
        terms: int32, ascending within a row, each in 0 .. width.
        weights: float32, finite, of any sign.
        width: V.

    Raises:
        ValueError: if the arrays do not describe such rows.
        UserError: naming the row, if a weight is NaN or infinite.
    """

    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: Floats
    width: int

    def __post_init__(self) -> None:
        types = " ".join(array.dtype.name for array in (self.offsets, self.terms, self.weights))
        if types != "int64 int32 float32":
            raise ValueError(f"offsets, terms and weights are {types}; wanted int64 int32 float32")
        if not len(self.offsets) or self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            raise ValueError("offsets must begin with 0 and never fall")
        if not self.offsets[-1] == len(self.terms) == len(self.weights):
            raise ValueError(
                f"{self.offsets[-1]} entries by the offsets, {len(self.terms)} terms, {len(self.weights)} weights"
            )
        if len(self.terms) and not 0 <= self.terms.min() <= self.terms.max() < self.width:
            raise ValueError(f"terms reach from {self.terms.min()} to {self.terms.max()}; the width is {self.width}")
        rises = np.diff(self.terms) > 0
        begins = self.offsets[1:-1]
        rises[begins[(begins > 0) & (begins < len(self.terms))] - 1] = True
        if not rises.all():
            raise ValueError(f"the terms of row {self._row_of(int(rises.argmin()))} do not ascend")
        if not np.isfinite(self.weights).all():
            at = int(np.isfinite(self.weights).argmin())
            raise _not_finite(self._row_of(at), int(self.terms[at]), float(self.weights[at]))

    @classmethod
    def top(cls, weights_NV: Floats, k: int | None) -> "SparseRows":
        """The k largest weights of each row (by value, not by magnitude), less zeros; of equal ones at the cut, those
        of smaller terms stay. k none: all that are not zero.

        Raises:
            UserError: naming the row, if a weight is NaN or infinite.
        """
        finite = np.isfinite(weights_NV)
        if not finite.all():
            row, term = (int(at[0]) for at in np.nonzero(~finite))
            raise _not_finite(row, term, float(weights_NV[row, term]))
        kept_NV = weights_NV != 0
        if k is not None and k < weights_NV.shape[1]:
            kept_NV &= _mark_largest(weights_NV, k)
        rows, terms = np.nonzero(kept_NV)
        offsets = np.searchsorted(rows, np.arange(len(weights_NV) + 1))
        weights = weights_NV[rows, terms].astype(np.float32, copy=False)
        return cls(offsets.astype(np.int64), terms.astype(np.int32), weights, weights_NV.shape[1])

    @classmethod
    def concat(cls, parts: Sequence["SparseRows"]) -> "SparseRows":
        """The rows of all parts, one after the other; at least one part, all of one width."""
        if len(widths := {part.width for part in parts}) != 1:
            raise ValueError(f"rows of widths {sorted(widths)} cannot be joined; they are of different vocabularies")
        starts = np.cumsum([0, *(len(part.terms) for part in parts)])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
        return cls(
            np.concatenate([np.zeros(1, np.int64), *offsets]),
            np.concatenate([part.terms for part in parts]),
            np.concatenate([part.weights for part in parts]),
            parts[0].width,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> "SparseRows":
        """Rows `start` .. `stop`; terms and weights share memory with these."""
        start, stop, _ = slice(start, stop).indices(len(self))
        offsets = self.offsets[start : max(start, stop) + 1]
        entries = slice(offsets[0], offsets[-1])
        return SparseRows(offsets - offsets[0], self.terms[entries], self.weights[entries], self.width)

    def take(self, rows: NDArray[np.int64]) -> "SparseRows":
        """The rows with these numbers, in this order."""
        counts = np.diff(self.offsets)[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        entries = np.repeat(self.offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        return SparseRows(offsets, self.terms[entries], self.weights[entries], self.width)

    def heaviest(self, k: int) -> "SparseRows":
        """The k largest weights of each row, as `top` chooses them."""
        row = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        by_weight = np.lexsort((self.terms, -self.weights, row))
        kept = np.sort(by_weight[np.arange(len(row)) - self.offsets[row] < k])
        offsets = np.searchsorted(row[kept], np.arange(len(self) + 1)).astype(np.int64)
        return SparseRows(offsets, self.terms[kept], self.weights[kept], self.width)

    def row(self, index: int) -> tuple[NDArray[np.int32], Floats]:
        """Terms and weights of one row."""
        entries = slice(self.offsets[index], self.offsets[index + 1])
        return self.terms[entries], self.weights[entries]

    def _row_of(self, entry: int) -> int:
        return int(np.searchsorted(self.offsets, entry, side="right")) - 1


def _mark_largest(weights_NV: Floats, k: int) -> NDArray[np.bool_]:
    """Marks the k largest values of each row; of equal ones at the cut, the first."""
    least_N1 = np.partition(weights_NV, -k, axis=1)[:, -k, None]
    above_NV, equal_NV = weights_NV > least_N1, weights_NV == least_N1
    room_N1 = k - above_NV.sum(axis=1, keepdims=True)
    crowded = np.flatnonzero(equal_NV.sum(axis=1, keepdims=True) > room_N1)
    equal_NV[crowded] &= equal_NV[crowded].cumsum(axis=1) <= room_N1[crowded]
    kept_NV: NDArray[np.bool_] = above_NV | equal_NV
    return kept_NV


def _not_finite(row: int, term: int, weight: float) -> UserError:
    return UserError(
        f"lexical weights, row {row}: the weight of term {term} is {weight}; the encoder that made them is broken, "
        "look at the losses of its training"
    )


MAGIC = b"midmask lexical\0"
VERSION = 1
HEADER = struct.Struct("<16sI5QI")

PACKED_AT_ONCE = 1 << 16
"""Numbers spread to bits at once, 32 bytes each; a multiple of 8, so that every part ends with a whole byte."""


def write_rows(stream: BinaryIO, rows: SparseRows) -> None:
    """Writes rows to a stream; equal rows give equal bytes."""
    lengths = np.diff(rows.offsets)
    shortest = int(lengths.min()) if len(lengths) else 0
    length_bits = int(lengths.max(initial=shortest) - shortest).bit_length()
    body = (
        rows.weights.astype("<f4").tobytes()
        + _pack(rows.terms, _term_bits(rows.width))
        + _pack(lengths - shortest, length_bits)
    )
    counts = (len(rows), len(rows.terms), rows.width, shortest, length_bits)
    stream.write(HEADER.pack(MAGIC, VERSION, *counts, zlib.crc32(body)) + body)


def read_rows(stream: BinaryIO) -> SparseRows:
    """The rows of a file that `write_rows` wrote.

    Raises:
        UserError: if it is no such file, of another version, cut short, or changed.
    """
    header = stream.read(HEADER.size)
    if header[: len(MAGIC)] != MAGIC or len(header) < HEADER.size:
        raise UserError(f"no file of lexical views: it begins with {header[:16]!r} instead of {MAGIC!r}")
    _, version, count, entries, width, shortest, length_bits, checksum = HEADER.unpack(header)
    if version != VERSION:
        raise UserError(f"lexical views of version {version}; this midmask reads version {VERSION}: encode again")
    term_bits = _term_bits(width)
    sizes = [4 * entries, _bytes(entries, term_bits), _bytes(count, length_bits)]
    body = stream.read()
    if len(body) != sum(sizes):
        raise UserError(
            f"lexical views of {len(body)} bytes instead of {sum(sizes)}: cut short or joined; encode again"
        )
    if zlib.crc32(body) != checksum:
        raise UserError("lexical views whose checksum is wrong: the file was changed; encode again")
    lengths = shortest + _unpack(body[sizes[0] + sizes[1] :], count, length_bits)
    return SparseRows(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
        _unpack(body[sizes[0] : sizes[0] + sizes[1]], entries, term_bits).astype(np.int32),
        np.frombuffer(body[: sizes[0]], dtype="<f4").astype(np.float32),
        width,
    )


def read_lengths(stream: BinaryIO) -> tuple[NDArray[np.int64], int]:
    """How many entries each row of such a file has, and the width, without reading the entries."""
    _, _, count, entries, width, shortest, length_bits, _ = HEADER.unpack(stream.read(HEADER.size))
    stream.seek(HEADER.size + 4 * entries + _bytes(entries, _term_bits(width)))
    return shortest + _unpack(stream.read(), count, length_bits), width


def packed_size(lengths: NDArray[np.int64], width: int) -> int:
    """Bytes that `write_rows` takes for rows of these lengths."""
    entries = int(lengths.sum())
    varied = int(lengths.max() - lengths.min()).bit_length() if len(lengths) else 0
    return HEADER.size + 4 * entries + _bytes(entries, _term_bits(width)) + _bytes(len(lengths), varied)


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
