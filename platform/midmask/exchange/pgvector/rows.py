"""Passages in the binary form of PostgreSQL's COPY, so that every bit of a vector arrives.

    file    the signature, rows, and a final -1 of 16 bits
    row     the number of columns, then for each its bytes' length and its bytes, all big-endian
    vector  int16 dimensions, int16 0, float32 values
    sparsevec  int32 dimensions, int32 entries, int32 0, int32 indices from 0, float32 weights

Sources: the chapter "COPY" of PostgreSQL's manual; `vector_recv` and `sparsevec_recv` of pgvector 0.8.
"""

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from midmask.errors import UserError
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = struct.pack("!h", -1)

MOST_DENSE, MOST_WORDS = 16_000, 16_000
"""Dimensions of a vector and entries of a sparsevec that pgvector stores at most."""

NUL_SHOWN_AS = "\ufffd"
"""What stands in the table for the character NUL, which PostgreSQL's texts cannot have."""


def encode_rows(passages: pa.Table, views: Views) -> bytes:
    """A file for `COPY … FROM STDIN WITH (FORMAT binary)`: doc_id, title, text and the vectors that there are, dense
    before lexical.

    Raises:
        UserError: naming the passage, if a vector has more words than pgvector stores.
    """
    names = passages["doc_id"].to_pylist()
    texts = [[_text(value or "") for value in passages[name].to_pylist()] for name in ("title", "text")]
    columns = [[name.encode() for name in names], *texts, *_vectors(names, views)]
    rows = (struct.pack("!h", len(columns)) + b"".join(map(_field, row)) for row in zip(*columns, strict=True))
    return b"".join([HEADER, *rows, END])


def _field(value: bytes) -> bytes:
    return struct.pack("!i", len(value)) + value


def _text(value: str) -> bytes:
    return value.replace("\0", NUL_SHOWN_AS).encode()


def _vectors(names: list[str], views: Views) -> Iterator[list[bytes]]:
    """The column of each view that there is."""
    if views.dense_ND is not None:
        big_ND = np.asarray(views.dense_ND).astype(">f4")
        head = struct.pack("!hh", big_ND.shape[1], 0)
        yield [head + vector_D.tobytes() for vector_D in big_ND]
    if views.lexical is not None:
        _check_words(names, views.lexical)
        yield [_sparse(views.lexical, row) for row in range(len(views.lexical))]


def _sparse(rows: SparseRows, row: int) -> bytes:
    terms, weights = rows.row(row)
    held = weights != 0  # pgvector refuses an entry of weight zero
    head = struct.pack("!iii", rows.width, int(held.sum()), 0)
    return b"".join([head, terms[held].astype(">i4").tobytes(), weights[held].astype(">f4").tobytes()])


def _check_words(names: list[str], rows: SparseRows) -> None:
    words = np.diff(rows.offsets)
    if int(words.max(initial=0)) > MOST_WORDS:
        row = int(words.argmax())
        raise UserError(
            f"passage {names[row]!r} has {words[row]:,} words with a weight; pgvector stores at most {MOST_WORDS:,}. "
            "Train the model with fewer: representation.passage_terms"
        )
