"""Token rows to views, so that the bits do not depend on who encodes what.

Rows are sorted by length and cut into fixed batches, and each batch is computed by one thread; so neither shards nor
threads can change a batch, and a view is the same to the last bit.

Shapes: N texts, B rows of a batch, L tokens, D width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midmask.arrays import Ints
from midmask.encoders.late_interaction import TokenVectors
from midmask.encoders.precision import Precision, autocast_type
from midmask.retrieve.batches import length_batches, run_batches
from midmask.retrieve.coded_tokens import CodedTokens
from midmask.retrieve.models import Encoder
from midmask.retrieve.sparse import SparseRows
from midmask.retrieve.views import Views

BATCH_TOKENS = {"cpu": 1024, "cuda": 65_536}
"""Padded tokens of one batch. On a CPU enough to fill a core and few enough to stay in its cache: a mini backbone takes
a quarter longer at 4,096, and as long at 512 and 2,048. The figure for GPUs is not measured."""


@dataclass(frozen=True)
class Encoding:
    """How token rows become views; everything but `threads` changes the numbers.

    terms: words of a lexical view that are kept, the heaviest; none: all. max_length: tokens a row is cut to (its first
    ones and its last one, [SEP]); none: as tokenised.
    """

    pad_id: int
    terms: int | None = None
    max_length: int | None = None
    batch_tokens: int = BATCH_TOKENS["cpu"]
    device: str = "cpu"
    threads: int = 1
    precision: Precision = "fp32"


class NotFinite(ValueError):
    """Some rows have views that are not finite. `rows`: which ones, ascending."""

    def __init__(self, rows: Ints) -> None:
        super().__init__(f"the views of {len(rows)} rows are not finite")
        self.rows = rows


def encode_rows(encoder: Encoder, rows: Sequence[NDArray[Any]], encoding: Encoding) -> Views:
    """The views of each token row.

    Raises:
        NotFinite: if there is a NaN or an infinity among them.
    """
    rows = [_truncate(row, encoding.max_length) for row in rows]
    batches = length_batches(np.array([len(row) for row in rows], dtype=np.int64), encoding.batch_tokens)

    def run(batch: Ints) -> tuple[Views, NDArray[np.bool_]]:
        return _encode_batch(encoder, [rows[row] for row in batch], encoding)

    found = run_batches(run, batches, encoding.threads if encoding.device == "cpu" and encoder.shared else 1)
    order = np.argsort(np.concatenate(batches), kind="stable")
    finite_N = np.concatenate([finite for _, finite in found])[order]
    if not finite_N.all():
        raise NotFinite(np.flatnonzero(~finite_N))
    return _join([views for views, _ in found], order)


def _join(parts: Sequence[Views], order: Ints) -> Views:
    """The texts of all parts, of all of them those at the positions `order`."""
    late = [part.late for part in parts if part.late is not None]
    if late:
        return Views(None, None, CodedTokens.concat(late).take(order))
    dense = [part.dense_ND for part in parts if part.dense_ND is not None]
    lexical = [part.lexical for part in parts if part.lexical is not None]
    return Views(
        np.concatenate(dense)[order] if dense else None, SparseRows.concat(lexical).take(order) if lexical else None
    )


def _truncate(row: NDArray[Any], max_length: int | None) -> NDArray[Any]:
    if max_length is None or len(row) <= max_length:
        return row
    return np.append(row[: max_length - 1], row[-1])


def _encode_batch(encoder: Encoder, rows: list[NDArray[Any]], encoding: Encoding) -> tuple[Views, NDArray[np.bool_]]:
    """Views of some rows, and which of them are finite; of the others the lexical view is empty, and token vectors are
    zeros.
    """
    lengths_B = np.array([len(row) for row in rows])
    ids_BL = np.full((len(rows), int(lengths_B.max())), encoding.pad_id, dtype=np.int64)
    ids_BL[np.arange(ids_BL.shape[1]) < lengths_B[:, None]] = np.concatenate(rows)
    device = torch.device(encoding.device)
    bf16 = autocast_type(encoding.precision, device)
    with torch.inference_mode(), torch.autocast(device.type, dtype=bf16, enabled=bf16 is not None):
        views = encoder(*(torch.from_numpy(array).to(device) for array in (ids_BL, lengths_B)))
        if views.tokens is not None:
            return _code_tokens(views.tokens)
        finite_B = torch.stack([view.isfinite().all(1) for view in views.tensors()]).all(0)
        lexical_BV = None if views.lexical_BV is None else views.lexical_BV.masked_fill(~finite_B[:, None], 0.0)
    return (
        Views(
            None if views.dense_BD is None else views.dense_BD.float().cpu().numpy(),
            None if lexical_BV is None else SparseRows.top(lexical_BV.float().cpu().numpy(), encoding.terms),
        ),
        finite_B.cpu().numpy(),
    )


def _code_tokens(tokens: TokenVectors) -> tuple[Views, NDArray[np.bool_]]:
    vectors_TD, lengths_B = tokens.vectors_TD.float().cpu().numpy(), tokens.lengths_B.cpu().numpy()
    finite_T = np.isfinite(vectors_TD).all(axis=1)
    coded = CodedTokens.code(np.where(finite_T[:, None], vectors_TD, np.float32(0)), lengths_B)
    return Views(None, None, coded), np.logical_and.reduceat(finite_T, coded.starts_N)
