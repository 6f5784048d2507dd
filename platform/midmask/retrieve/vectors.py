"""Token rows to vectors, so that the bits do not depend on who encodes what.

Rows are sorted by length and cut into fixed batches, and each batch is computed by one thread; so neither shards nor
threads can change a batch, and a vector is the same to the last bit.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midmask.encoders.backbone import Side
from midmask.encoders.experts import put_query_expert
from midmask.encoders.reading import quiet_transformers
from midmask.errors import UserError
from midmask.masking.words import one_thread

BATCH_TOKENS = 4096
"""Padded tokens of one batch: enough to fill a core, small enough to stay in its cache."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


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

    with one_thread():
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
