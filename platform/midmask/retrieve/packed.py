"""Lexical views of passages in as few bytes as the papers count: a float32 and ceil(log2 V) bits of index an entry.

DupMAE counts "384+260" as 768 floats a passage: 384 of the dense view, and 260 entries of 32 + 15 bits. The file, all
little-endian:

    magic b"midmask lexical\\0", version                          16 bytes, uint32
    rows, entries, width, shortest row, bits of a length         uint64 x 5
    CRC-32 of what follows                                       uint32
    weights                                                      float32 x entries
    terms                                                        packed, ceil(log2 width) bits each
    lengths of the rows less the shortest                        packed; no bits where all rows have one length
"""

import struct
import zlib
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from midmask.errors import UserError
from midmask.retrieve.sparse import SparseRows

MAGIC = b"midmask lexical\0"
VERSION = 1
HEADER = struct.Struct("<16sI5QI")

PACKED_AT_ONCE = 1 << 16
"""Numbers spread to bits at once, 32 bytes each; a multiple of 8, so that every part ends with a whole byte."""


def write_rows(stream: BinaryIO, rows: SparseRows) -> None:
    """Equal rows give equal bytes."""
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
