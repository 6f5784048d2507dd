"""How long, in what batches and with which AdamW a model is trained. The learning rate depends on the step alone."""

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from midmask.core.config import Config, runtime
from midmask.encoders.precision import Precision
from midmask.errors import UserError
from midmask.objectives.objective import KEPT


class TrainConfig(Config):
    """One training run: identity first, then what only decides how it is carried out."""

    steps: int = Field(ge=1, lt=2**31, description="optimiser steps of the whole run")
    batch_size: int = Field(
        ge=1, le=2**24, description="rows of a step, over all workers: passages, or queries in fine-tuning"
    )
    learning_rate: float = Field(gt=0, le=1, description="peak learning rate of AdamW")
    warmup: float = Field(
        0.1, ge=0, le=1, description="share of the steps, at the start, in which the learning rate rises from 0"
    )
    decay: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of the steps, at the end, in which the learning rate falls to 0; 1 - warmup: linear decay",
    )
    weight_decay: float = Field(
        0.01, ge=0, le=1, description="weight decay of AdamW, on matrices only (no biases, no LayerNorm)"
    )
    clip_norm: float = Field(1.0, gt=0, description="largest norm of the gradient, over all parameters and workers")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of weights, order of examples, masks and dropout")
    precision: Precision = Field(
        "auto",
        description="number type of matrix products under autocast; auto: bf16 on a GPU that has it and on a processor "
        "that gains by it, else fp32",
    )
    micro_batch: int | None = runtime(
        None, "rows that a worker computes at once; none: as many of its share as fit into the device's memory", ge=1
    )
    memory_gib: float | None = runtime(
        None, "GiB of its device that a worker may use; none: what is free on a GPU, and no limit on a CPU", gt=0
    )
    log_every: int = runtime(10, "steps between two reports", ge=1)
    health_every: int = runtime(
        200, "pre-training: steps between two measurements of the encoder's health; 0: none", ge=0
    )
    checkpoint_every: int = runtime(500, "steps between two checkpoints", ge=1)
    threads: int | None = runtime(None, "CPU threads of a worker; none: torch's default", ge=1)

    @field_validator("steps", "learning_rate", mode="before")
    @classmethod
    def _weights_change(cls, value: object) -> object:
        if value == 0:
            raise ValueError("no weight would change, so nothing can be learned; set a number above 0")
        return value

    @model_validator(mode="after")
    def _phases_fit(self) -> "TrainConfig":
        if self.warmup + self.decay > 1 + 1e-9:
            raise UserError(
                f"warmup = {self.warmup} and decay = {self.decay}: together they may take at most 1 of the steps"
            )
        return self


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of step 0 ≤ step < steps: linear warm-up, constant, linear decay.

    A prefix of the run does not depend on where it is stopped, as long as it is stopped before the decay (Hägele et al.
    2024, "Scaling laws and compute-optimal training beyond fixed training durations").
    """
    warm, cool = round(config.warmup * config.steps), round(config.decay * config.steps)
    rise = (step + 1) / warm if step < warm else 1.0
    left = config.steps - step
    fall = left / cool if left < cool else 1.0
    return config.learning_rate * min(rise, fall)


def build_optimiser(module: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019) over the module's parameters; the rate is set before every step."""
    matrices = [parameter for parameter in module.parameters() if parameter.ndim >= 2]
    others = [parameter for parameter in module.parameters() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=config.learning_rate, fused=True)


def update(module: nn.Module, optimiser: torch.optim.AdamW, config: TrainConfig, step: int) -> Tensor:
    """One optimiser step from the gradients that are there, which are then freed.

    Returns:
        The gradient's norms before clipping, on the device: of all parameters, and of the heads alone; [2].
    """
    thrown = (parameter.grad for name, parameter in module.named_parameters() if not name.startswith(KEPT))
    heads_norm = nn.utils.get_total_norm([gradient for gradient in thrown if gradient is not None])
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(config, step)
    norm = nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return torch.stack([norm, heads_norm.to(norm)])
