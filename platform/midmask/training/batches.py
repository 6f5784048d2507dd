"""From token rows to what a step needs: padded micro-batches, made ready on a thread a few steps ahead of the loop."""

import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from midmask.core.batch import Batch, TokenRows
from midmask.masking.randomness import row_keys
from midmask.training.examples import StepReader, TextColumns, TextRows, WorkerSteps, open_examples

T = TypeVar("T")

AHEAD = 4
"""Steps that are made ready beside the loop."""


class ReadCounts(NamedTuple):
    """What was read for a step, for the trace."""

    tokens: int  # without padding
    slots: int  # tokens with padding
    # Sum over the rows of a CRC-32 of their number and tokens: how rows lie over workers does not change it
    digest: int


@dataclass(frozen=True)
class StepBatches:
    """One step's work for one worker, on the CPU."""

    step: int
    micro: list[Batch]
    read: ReadCounts


def batches_ahead(
    reader: StepReader, worker: WorkerSteps, *, steps: int, pad_id: int, micro_batch: int | None, pin: bool
) -> Iterator[StepBatches]:
    """The reader's steps as padded micro-batches, made ready ahead of time, on pinned pages if `pin`.

    Args:
        steps: of the whole run, whatever part of it is read.
    """
    group = open_examples(worker.examples).group

    def make(step: int, texts: TextColumns) -> StepBatches:
        epoch = worker.plan().epoch_of(step)
        rows = len(worker.plan().share(step, worker.rank, worker.size))
        size = micro_batch or rows
        micro = [
            Batch(
                step,
                {
                    name: padded(_slice(text, start, size, rows), worker.seed, epoch, pad_id, pin)
                    for name, text in texts.items()
                },
                group,
                step / steps,
                _teacher(texts, start, size, rows, pin),
            )
            for start in range(0, rows, size)
        ]
        read = ReadCounts(
            tokens=sum(int(text.lengths.sum()) for text in texts.values()),
            slots=sum(text.ids_BL.numel() for batch in micro for text in batch.texts.values()),
            digest=sum(_digest(text) for text in texts.values()),
        )
        return StepBatches(step, micro, read)

    return ahead((make(step, texts) for step, texts in reader(worker)), AHEAD)


def _slice(text: TextRows, start: int, size: int, rows: int) -> TextRows:
    """Examples start … start + size - 1 of `rows`; a text with several rows an example keeps them together."""
    each = len(text.lengths) // rows
    first, last = start * each, min(start + size, rows) * each
    ends = np.concatenate([[0], np.cumsum(text.lengths)])
    tokens = slice(ends[first], ends[last])
    weights = None if text.weights is None else text.weights[tokens]
    return TextRows(text.flat[tokens], text.lengths[first:last], text.rows[first:last], weights)


def _teacher(texts: TextColumns, start: int, size: int, rows: int, pin: bool) -> torch.Tensor | None:
    """What the teacher gives for examples start … start + size - 1 of `rows`, as in `Batch`; none without a teacher."""
    given = texts["passage"].teacher if "passage" in texts else None
    if given is None:
        return None
    teacher = torch.from_numpy(given.reshape(rows, -1)[start : start + size].copy())
    return teacher.pin_memory() if pin else teacher


def padded(text: TextRows, seed: int, epoch: int, pad_id: int, pin: bool = False) -> TokenRows:
    """Rows as a batch, with the keys that their masks are drawn by; pin: in memory that a GPU copies from."""
    lengths_B = torch.from_numpy(text.lengths.astype(np.int64))
    seen_BL = torch.arange(int(lengths_B.max())) < lengths_B[:, None]
    ids_BL = torch.full(seen_BL.shape, pad_id, dtype=torch.int64)
    ids_BL[seen_BL] = torch.from_numpy(text.flat.astype(np.int64))
    tensors = [ids_BL, lengths_B, row_keys(seed, epoch, text.rows)]
    if text.weights is not None:
        weights_BL = torch.zeros(seen_BL.shape)
        weights_BL[seen_BL] = torch.from_numpy(text.weights.copy())
        tensors.append(weights_BL)
    return TokenRows(*(tensor.pin_memory() for tensor in tensors)) if pin else TokenRows(*tensors)


def _digest(text: TextRows) -> int:
    return sum(
        zlib.crc32(piece.tobytes(), int(row) & 0xFFFFFFFF) for piece, row in zip(text.pieces(), text.rows, strict=True)
    )


def ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, produced on a thread at most `depth` ahead. Its error is raised here; closing this ends it."""
    thread = ThreadPoolExecutor(1, "midmask-reader")
    ready = deque(thread.submit(next, items, None) for _ in range(depth))
    try:
        while (item := ready.popleft().result()) is not None:
            ready.append(thread.submit(next, items, None))
            yield item
    finally:
        thread.shutdown(wait=False, cancel_futures=True)
