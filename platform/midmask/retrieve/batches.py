"""Rows in batches whose make-up depends on the rows alone, so that neither threads nor actors can change a bit."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from midmask.arrays import Ints
from midmask.masking.words import one_thread

T = TypeVar("T")


def length_batches(lengths: Ints, batch_tokens: int) -> list[Ints]:
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


def run_batches(run: Callable[[Ints], T], batches: Sequence[Ints], threads: int) -> list[T]:
    """What `run` gives for each batch, in their order; `threads` batches at once, each computed by one thread."""
    with one_thread():
        if threads == 1:
            return [run(batch) for batch in batches]
        # Longest first, so that no thread is left alone with the longest batch.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, reversed(batches)))[::-1]
