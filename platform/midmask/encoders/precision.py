"""In which numbers matrix products are computed: fp32, or bf16 under autocast. Weights and optimiser are fp32 always.

On a processor with bf16 products (AMX, AVX-512-BF16) these are two to three times as fast; whether that pays depends on
how wide the matrices are, since everything between the products takes as long as before. So `auto` is settled when a
job is planned, by its driver, and the result is a part of every fingerprint that depends on it.
"""

import logging
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from midmask.core.config import Config, added, fingerprint
from midmask.errors import UserError
from midmask.store.recall import recall

log = logging.getLogger(__name__)

Precision = Literal["auto", "fp32", "bf16"]

SWITCH = "MIDMASK_CPU_BF16"
"""0: as on a processor without bf16 products."""
NARROWEST = 256
"""Width of hidden states below which bf16 is not tried: a tiny encoder spends its time between the products."""
GAIN = 1.2
"""How many times as fast bf16 must be in the probe to be taken."""
ROWS, TURNS, TURN_S = 1024, 4, 0.1
"""Size of the probe: rows of a pass; turns of each precision, and seconds of a turn."""


class EncodingFields(Config):
    """Base of the configs of searches with an encoder: whose queries, how far texts are read, in which numbers."""

    max_queries: int | None = Field(
        None, ge=1, description="number of queries, chosen by a hash of their id; none: all"
    )
    query_length: int | None = Field(None, ge=4, description="largest number of tokens of a query; none: as tokenised")
    passage_length: int | None = Field(
        None, ge=8, description="largest number of tokens of a passage; none: as tokenised"
    )
    precision: Precision = added(
        "auto", "of the encoder's products; auto: bf16 on a processor that gains by it, else fp32"
    )

    def settled(self, precision: Precision) -> Self:
        """The config with this in place of `auto`."""
        return self.model_copy(update={"precision": precision}) if self.precision == "auto" else self


def autocast_type(precision: Precision, device: torch.device) -> torch.dtype | None:
    """The type of autocast, or none for plain fp32. What is still `auto` is bf16 on a GPU that has it.

    Raises:
        UserError: for bf16 on a GPU without it.
    """
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bf16" and device.type == "cuda" and not has_bf16:
        raise UserError(
            "precision = 'bf16': this GPU has no bf16. Use fp32 or auto where it is set (pretrain.precision, "
            "stages.*.train.precision, evaluation.precision)."
        )
    if precision == "bf16" or (precision == "auto" and has_bf16):
        return torch.bfloat16
    return None


def processor_precision(width: int) -> Mapping[str, Precision]:
    """What `auto` means for an encoder of this width where this machine trains it, as {"precision": …}: bf16 if its
    processor has such products and they are faster; left to the device where there is a GPU.
    """
    if torch.cuda.is_available() or width < NARROWEST:
        return {"precision": "auto"}
    if not _has_bf16():
        log.info("precision=auto: fp32, since this processor has no bf16 products (or %s=0)", SWITCH)
        return {"precision": "auto"}
    gain = _known_gain(width)
    chosen: Precision = "bf16" if gain >= GAIN else "auto"
    log.info("precision=auto: %s; bf16 is %.1f times as fast in a probe", "bf16" if chosen == "bf16" else "fp32", gain)
    return {"precision": chosen}


def _has_bf16() -> bool:
    if os.environ.get(SWITCH) == "0":
        return False
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _known_gain(width: int) -> float:
    """The probe's result, measured once for each kind of processor, so that the same command gives the same plan."""
    kind: dict[str, Any] = {"processor": platform.processor() or platform.machine(), "model": processor_model()}
    name = f"bf16/{fingerprint({**kind, 'torch': torch.__version__, 'width': width})}.json"
    return recall(name, float, partial(_probe, width), plain=float)


def processor_model() -> str:
    """The name of this machine's processor; empty where the system does not tell."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return ""


def _probe(width: int) -> float:
    """The speed of a feed-forward layer in bf16 relative to fp32, forward and backward.

    Other processes should not decide it: one thread computes, since several that share a core wait for one another;
    processor time is counted; the two take turns, and of each the fastest turn counts.
    """
    layer = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    x_ND = torch.zeros(ROWS, width)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        turns = [(_rate(layer, x_ND, bf16=True), _rate(layer, x_ND, bf16=False)) for _ in range(TURNS)]
    finally:
        torch.set_num_threads(threads)
    return max(fast for fast, _ in turns) / max(plain for _, plain in turns)


def _rate(layer: nn.Module, x_ND: Tensor, *, bf16: bool) -> float:
    """Passes a second of processor time, after a first one that prepares the library's kernels."""
    passes, began = -1, 0.0
    while passes < 1 or time.process_time() - began < TURN_S:
        if passes == 0:
            began = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            total = layer(x_ND).float().sum()
        total.backward()
        passes += 1
    return passes / (time.process_time() - began)
