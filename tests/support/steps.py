"""What tests and benchmarks of training steps share: a step of any objective, medians of things run in turn.

Needs torch and the objectives only: no Ray, no MLflow, no pyarrow.
"""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

from midmask.batch import Batch
from midmask.encoders.backbone import BackboneConfig, build_backbone
from midmask.objectives import PRETRAINING, Objective, build_objective
from midmask.vocabulary import Vocabulary


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


def finish(device: str) -> None:
    """Waits for the device, whose work is only queued."""
    if device == "cuda":
        torch.cuda.synchronize()
