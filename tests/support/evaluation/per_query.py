"""Tables of per-query values."""

import numpy as np
import pyarrow as pa


def table(values, measure: str = "RR@10") -> pa.Table:
    names = [f"q{row}" for row in range(len(values))]
    return pa.table({"query_id": names, "measure": [measure] * len(values), "value": [*map(float, values)]})


def drawn(seed: int, count: int = 40, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 0.2, count)
