"""The Pareto front: what nothing else beats in one respect without losing in another."""

from collections.abc import Sequence
from typing import Literal

import numpy as np


def on_front(values_NK: Sequence[Sequence[float]], modes: Sequence[Literal["max", "min"]]) -> list[bool]:
    """Of N systems with K values each, whether no other is at least as good in all and better in one. Of systems that
    are equal in all, each is on the front if one is.

    Args:
        modes: whether more is better, for each of the K.
    """
    signs_K = np.array([1.0 if mode == "max" else -1.0 for mode in modes])
    gains_NK = np.asarray(values_NK, dtype=np.float64).reshape(len(values_NK), len(signs_K)) * signs_K
    beaten = [bool(((gains_NK >= own_K).all(axis=1) & (gains_NK > own_K).any(axis=1)).any()) for own_K in gains_NK]
    return [not one for one in beaten]
