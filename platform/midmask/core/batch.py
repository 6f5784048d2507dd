"""The types that all packages share: the batch that is trained on, and the loss.

Shape letters, used as suffixes of names: B rows of a batch, L tokens of a padded row, D width of a vector, V words of
the vocabulary, Q queries, N passages or negatives, G passages of one query (the positive first), K results of a query,
R positions of tokens to predict, over all rows. A file that needs another letter says so at its top.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenRows:
    """Token ids of some texts, padded on the right, special tokens included.

    A key is a function of (seed, epoch, example) only. Every mask of a row is drawn from its key, so it does not depend
    on the batch or the worker.
    """

    ids_BL: Tensor  # int64
    lengths_B: Tensor  # int64, true lengths
    keys_B: Tensor  # int64, one random key per row
    weights_BL: Tensor | None = None  # float32, each token's term weight in [0, 1], if the objective reads it


@dataclass(frozen=True)
class Batch:
    """The input of one worker in one training step: named groups of rows.

    Pre-training: "passage", and "context" where the objective reads pairs: row i of both belong together (two spans of
    a document; a passage and its pseudo-query). Fine-tuning: "query" and "passage", the latter with `group` rows per
    query in query order, the positive first.
    teacher: what a teacher gives, if there is one, float32: in pre-training its vector of each passage, [B, D]; in
    fine-tuning its score of each, [Q, G].
    progress: how much of the whole run lies behind this step, in [0, 1).
    """

    step: int
    texts: dict[str, TokenRows]
    group: int = 1
    progress: float = 0.0
    teacher: Tensor | None = None


@dataclass(frozen=True)
class Part:
    """One named term of a loss, not yet divided: the sum over its targets, their number, its weight.

    weight: a number, or [] on the device; 0 where the term is only reported.
    """

    total: Tensor
    count: Tensor
    weight: Tensor | float = 1.0


@dataclass(frozen=True)
class Loss:
    """The terms of a loss on one worker, as sums.

    `total` divides each by its count over *all* workers and micro-batches, which the loop has summed before
    (`Objective.counts`): so the loss does not depend on how a global batch is cut. `Part.count` is this worker's.
    """

    parts: dict[str, Part]

    def total(self, counts: dict[str, Tensor]) -> Tensor:
        """sum over parts of weight * local sum / global count; shape []."""
        terms = [part.weight * part.total / counts[name].clamp(min=1) for name, part in self.parts.items()]
        return torch.stack(terms).sum()
