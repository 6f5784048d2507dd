"""Whether this machine has bf16 products on its CPU."""

from pathlib import Path

import pytest
import torch


def has_bf16() -> bool:
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    return bool({"avx512_bf16", "amx_bf16"} & set(flags)) and not torch.cuda.is_available()


needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="this processor has no bf16 products")
