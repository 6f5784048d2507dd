"""Products in bf16 of many shapes do not fill the memory."""

import os
import subprocess
import sys

from tests.support.encoders.bf16 import needs_bf16

PRODUCTS = """
import midmask, torch
from pathlib import Path
from torch.nn.functional import linear

torch.set_num_threads(1)
weight_OI = torch.rand(512, 256).bfloat16().requires_grad_()

def multiply(rows):
    linear(torch.rand(rows, 256).bfloat16().requires_grad_(), weight_OI).sum().backward()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

multiply(1000)
before = resident()
for rows in range(700, 1000):
    multiply(rows)
print(resident() - before)
"""


@needs_bf16
def test_products_of_many_shapes_are_not_all_kept() -> None:
    """Pages that a process grows by with 300 shapes of bf16 products, and with torch's own sizes of its caches."""

    def growth(**variables: str) -> int:
        own = {name: value for name, value in os.environ.items() if "CACHE_CAPACITY" not in name}
        done = subprocess.run([sys.executable, "-c", PRODUCTS], env=own | variables, capture_output=True, check=True)
        return int(done.stdout)

    large = growth(LRU_CACHE_CAPACITY="1024", ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")
    assert growth() < large / 3
