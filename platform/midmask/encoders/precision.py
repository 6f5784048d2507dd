"""In which numbers matrix products are computed: fp32, or bf16 under autocast. Weights and optimiser are fp32 always.

A processor with AVX-512-BF16 passes a feed-forward layer of width 256 to 768 four times as fast in bf16; one with AMX
has such products too. `auto` is settled when a job is planned, by its driver, and the result is a
part of every fingerprint that depends on it.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, Self

import torch
from pydantic import Field

from midmask.core.config import Config, added
from midmask.errors import UserError

log = logging.getLogger(__name__)

Precision = Literal["auto", "fp32", "bf16"]

SWITCH = "MIDMASK_CPU_BF16"
"""0: as on a processor without bf16 products."""
NARROWEST = 256
"""Width of hidden states below which bf16 is not tried: a tiny encoder spends its time between the products."""


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
    processor has such products; left to the device where there is a GPU.
    """
    if torch.cuda.is_available() or width < NARROWEST:
        return {"precision": "auto"}
    if not _has_bf16():
        log.info("precision=auto: fp32, since this processor has no bf16 products (or %s=0)", SWITCH)
        return {"precision": "auto"}
    log.info("precision=auto: bf16, since this processor has bf16 products")
    return {"precision": "bf16"}


def _has_bf16() -> bool:
    if os.environ.get(SWITCH) == "0":
        return False
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def processor_model() -> str:
    """The name of this machine's processor; empty where the system does not tell."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return ""
