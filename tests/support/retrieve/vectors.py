"""Dense collections that are hard to rank, and ids in an order of their own."""

import numpy as np
import pyarrow as pa

from midmask.retrieve.index import VectorBlocks


def ids(count: int) -> pa.ChunkedArray:
    """Ids whose order has nothing to do with the rows' order."""
    return pa.chunked_array([[f"d{(row * 7919) % 10_007}" for row in range(count)]])


def in_memory(*blocks: np.ndarray) -> VectorBlocks:
    """Blocks that need not be read."""
    return VectorBlocks([len(block) for block in blocks], blocks.__getitem__)


def collapsed(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Vectors that are nearly one vector, with many exact ties."""
    vectors_ND = np.float32(1) + np.float32(2**-22) * draw.integers(0, 3, (2000, 64)).astype(np.float32)
    return (draw.standard_normal((8, 64)) * 10).astype(np.float32), vectors_ND


def cancelling(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Long vectors along one direction that the queries do not see: float32 scores are rounding errors.

    All are whole numbers, so float64 sums are exact in any order, on any processor.
    """
    direction_P2 = draw.integers(-9, 10, (32, 2))
    across_P2 = direction_P2[:, ::-1] * [1, -1]
    queries_QD = (draw.integers(-3, 4, (8, 32, 1)) * across_P2).reshape(8, 64)
    along_ND = np.outer(draw.integers(-(2**23), 2**23, 2000), direction_P2.reshape(-1))
    vectors_ND = along_ND + draw.integers(-2, 3, (2000, 64))
    apart_D = draw.permutation(64)  # products that cancel are not added next to each other
    return queries_QD[:, apart_D].astype(np.float32), vectors_ND[:, apart_D].astype(np.float32)
