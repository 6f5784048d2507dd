"""What the benchmarks of training steps share: made-up texts, a step of any objective, medians of things run in turn.

Needs torch and the objectives only: no Ray, no MLflow, no pyarrow.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

import numpy as np
import torch

from midmask.batch import Batch, TokenRows
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.masking import row_keys
from midmask.objectives import PRETRAINING, Objective, ObjectiveConfig, build_objective
from midmask.vocabulary import Vocabulary

CONTINUATIONS = 0.2
"""Share of tokens that continue a word, about that of English text under BERT's vocabulary."""
QUERY_LENGTH = 32
"""Tokens of a pseudo-query, specials included."""


def vocabulary(size: int = 30522) -> Vocabulary:
    """A vocabulary without strings: the specials first, then whole words, the last fifth continuations."""
    ids = torch.arange(size)
    return Vocabulary(size, 0, 2, 3, 4, 1, ids >= size * 4 // 5, (ids < 5) & (ids != 1), (ids > 5) & (ids < 200))


def full_rows(rows: int, length: int, words: Vocabulary, *, seed: int) -> TokenRows:
    """Random texts of exactly `length` tokens, [CLS] and [SEP] included, each token with a random weight."""
    generator = torch.Generator().manual_seed(seed)
    first = int(words.continues_V.long().argmax())
    ids = torch.randint(5, first, (rows, length), generator=generator)
    pieces = torch.randint(first, words.size, (rows, length), generator=generator)
    ids = torch.where(torch.rand((rows, length), generator=generator) < CONTINUATIONS, pieces, ids)
    ids[:, 0], ids[:, -1] = words.cls_id, words.sep_id
    weights = torch.rand((rows, length), generator=generator)
    return TokenRows(ids, torch.full((rows,), length), row_keys(seed, 0, np.arange(rows)), weights)


def batch_for(config: ObjectiveConfig, words: Vocabulary, *, rows: int, length: int) -> Batch:
    """What the objective reads: passages; or with each a second span as long, or a pseudo-query."""
    reads = config.reads()
    texts = {"passage": full_rows(rows, length, words, seed=1)}
    if reads.rows in ("spans", "pseudo_queries"):
        shorter = length if reads.rows == "spans" else min(length, QUERY_LENGTH)
        texts["context"] = full_rows(rows, shorter, words, seed=2)
    if not reads.term_weights:
        texts = {name: replace(text, weights_BL=None) for name, text in texts.items()}
    return Batch(0, texts)


def objective_named(name: str, backbone: str, words: Vocabulary) -> Objective:
    """An objective with its default settings on a backbone with fresh weights, training."""
    encoder = build_backbone(BackboneConfig(name=backbone), words, seed=0)
    return build_objective(PRETRAINING[name].Config(), encoder, words).train()


def training_step(objective: Objective, batch: Batch, *, bf16: bool = False) -> Callable[[], None]:
    """Masks, forward and backward pass, and AdamW, on the device the objective and the batch are on."""
    kind = batch.texts["passage"].ids_BL.device.type
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4, fused=kind == "cuda")

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(kind, torch.bfloat16, enabled=bf16):
            loss = objective(objective.draw(batch))
        loss.total({part: value.count for part, value in loss.parts.items()}).backward()
        optimiser.step()

    return step


def interleaved(
    steps: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each, taken in turn; one round of warming up comes first.

    Args:
        clock: `time.process_time`, with one thread, where other programs keep the machine busy.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = clock()
            step()
            if turn:
                seconds[name].append(clock() - start)
    return {name: median(values) for name, values in seconds.items()}
