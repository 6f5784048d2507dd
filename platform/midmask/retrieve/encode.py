"""Passages and queries to vectors, so that the bits do not depend on who encodes what.

A block is a row group of the tokens artifact (2,048 passages) and the unit of work: blocks can be encoded in any order,
by any number of processes, and a block that is there already is not encoded again. Inside a block rows are sorted by
length and cut into fixed batches, and each batch is computed by one thread; so neither shards nor threads can change a
batch, and a vector is the same to the last bit.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from midmask.artifact import Artifact, Place
from midmask.encoders.backbone import Side
from midmask.encoders.experts import put_query_expert
from midmask.encoders.reading import quiet_transformers
from midmask.errors import UserError

log = logging.getLogger(__name__)

BATCH_TOKENS = 4096
"""Padded tokens of one batch: enough to fill a core, small enough to stay in its cache."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Block:
    """Row group `group` of the tokens file `shard`: passages start .. start + rows."""

    index: int
    shard: str
    group: int
    start: int
    rows: int

    @property
    def file(self) -> str:
        return f"{self.index:05d}.npy"


@dataclass(frozen=True)
class Encoding:
    """How token rows become vectors; everything but `threads` changes the numbers.

    max_length: tokens a row is cut to (its first ones and its last one, [SEP]); none: as tokenised.
    """

    pad_id: int
    normalise: bool
    max_length: int | None = None
    batch_tokens: int = BATCH_TOKENS
    device: str = "cpu"
    threads: int = 1


def blocks_of(tokens: Place) -> list[Block]:
    """All blocks of a tokens artifact in row order, from the files' footers alone."""
    found: list[Block] = []
    start = 0
    for shard in (tokens / "passages").names():
        with (tokens / "passages" / shard).reading() as stream:
            metadata = pq.ParquetFile(stream).metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        for group, rows in enumerate(sizes):
            found.append(Block(len(found), shard, group, start, rows))
            start += rows
    return found


def read_block(tokens: Place, block: Block, columns: Sequence[str] = ("doc_id", "ids")) -> pa.Table:
    with (tokens / "passages" / block.shard).reading() as stream:
        return pq.ParquetFile(stream).read_row_group(block.group, columns=list(columns))


def load_encoder(folder: Path, device: str = "cpu", side: Side = "passage") -> Any:
    """The Hugging Face base model of a folder, in float32, without dropout; runs no code from it. If the folder has
    experts, it is the one of `side`.

    Raises:
        UserError: if the folder holds no model in safetensors.
    """
    from transformers import AutoModel

    wanted: dict[str, Any] = {"dtype": torch.float32, "trust_remote_code": False, "use_safetensors": True}
    try:
        with quiet_transformers():
            try:
                encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False, **wanted)
            except TypeError:  # families without a pooler do not know the argument
                encoder = AutoModel.from_pretrained(folder, **wanted)
    except (OSError, ValueError) as error:
        raise UserError(f"encoder {str(folder)!r}: no model can be read there ({str(error).splitlines()[0]})") from None
    if side == "query":
        put_query_expert(encoder, folder)
    return encoder.to(device).eval()


def encode_rows(encoder: Any, rows: Sequence[NDArray[Any]], encoding: Encoding) -> Floats:
    """[CLS] of the last hidden state of each token row, unit length if asked for: float32 [N, D]."""
    rows = [_cut(row, encoding.max_length) for row in rows]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    batches = _batches(lengths, encoding.batch_tokens)
    vectors_ND = np.empty((len(rows), encoder.config.hidden_size), dtype=np.float32)

    def run(batch: Ints) -> None:
        vectors_ND[batch] = _encode_batch(encoder, [rows[row] for row in batch], encoding)

    with _one_thread_an_operation():
        if encoding.threads == 1 or encoding.device != "cpu":
            for batch in batches:
                run(batch)
        else:
            # Longest first, so that no thread is left alone with the longest batch.
            with ThreadPoolExecutor(encoding.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(run, reversed(batches)))
    return vectors_ND


def _cut(row: NDArray[Any], max_length: int | None) -> NDArray[Any]:
    if max_length is None or len(row) <= max_length:
        return row
    return np.append(row[: max_length - 1], row[-1])


def _batches(lengths: Ints, batch_tokens: int) -> list[Ints]:
    """Rows by length, then position, cut where a padded batch would pass `batch_tokens`; a long row goes alone."""
    by_length = np.argsort(lengths, kind="stable")
    batches: list[Ints] = []
    first = 0
    for end in range(1, len(by_length) + 1):
        full = end == len(by_length) or (end - first + 1) * lengths[by_length[end]] > batch_tokens
        if full:
            batches.append(by_length[first:end])
            first = end
    return batches


@contextmanager
def _one_thread_an_operation() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _encode_batch(encoder: Any, rows: list[NDArray[Any]], encoding: Encoding) -> Floats:
    lengths_B = np.array([len(row) for row in rows])
    ids_BL = np.full((len(rows), int(lengths_B.max())), encoding.pad_id, dtype=np.int64)
    seen_BL = np.arange(ids_BL.shape[1]) < lengths_B[:, None]
    ids_BL[seen_BL] = np.concatenate(rows)
    with torch.inference_mode():
        output = encoder(
            input_ids=torch.from_numpy(ids_BL).to(encoding.device),
            attention_mask=torch.from_numpy(seen_BL.astype(np.int64)).to(encoding.device),
        )
        vectors_BD = output.last_hidden_state[:, 0].float()
        if encoding.normalise:
            vectors_BD = torch.nn.functional.normalize(vectors_BD, dim=-1)
        return np.asarray(vectors_BD.cpu().numpy(), dtype=np.float32)


def encode_passages(
    encoder: Any, tokens: Artifact, out: Place, encoding: Encoding, *, blocks: Sequence[Block] | None = None
) -> int:
    """Writes `embeddings/00000.npy` …, float32 [rows, D], for `blocks` (default: all); returns how many were missing.

    Raises:
        UserError: naming the passages whose vector is not finite.
    """
    encoded = 0
    for block in blocks_of(tokens.place) if blocks is None else blocks:
        target = out / "embeddings" / block.file
        if target.exists():
            continue
        table = read_block(tokens.place, block)
        vectors_ND = encode_rows(encoder, token_rows(table["ids"]), encoding)
        _refuse_nan(vectors_ND, table["doc_id"], "passages")
        with target.writing() as stream:
            np.save(stream, vectors_ND)
        encoded += 1
        log.info("encoded passages %d to %d", block.start, block.start + block.rows)
    return encoded


def encode_queries(encoder: Any, queries: pa.Table, encoding: Encoding) -> tuple[list[str], Floats]:
    """Query ids and vectors [Q, D] of a table (query_id, ids), in its order.

    Raises:
        UserError: naming the queries whose vector is not finite.
    """
    vectors_QD = encode_rows(encoder, token_rows(queries["ids"]), encoding)
    _refuse_nan(vectors_QD, queries["query_id"], "queries")
    return queries["query_id"].to_pylist(), vectors_QD


def token_rows(column: pa.ChunkedArray) -> list[NDArray[np.int32]]:
    """A list column as arrays that share its memory."""
    ids = column.combine_chunks()
    offsets = ids.offsets.to_numpy()
    values = ids.values.to_numpy(zero_copy_only=False)
    return [values[start:end] for start, end in pairwise(offsets.tolist())]


def _refuse_nan(vectors_ND: Floats, names: pa.ChunkedArray, kind: str) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))
    if len(bad):
        first = ", ".join(repr(name) for name in names.take(pa.array(bad[:5])).to_pylist())
        raise UserError(
            f"the encoder gives vectors that are not finite for {len(bad)} {kind}, among them {first}; its training "
            "went wrong, so use an earlier checkpoint"
        )
