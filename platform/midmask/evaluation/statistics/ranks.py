"""Orders of systems: ranks that the tests allow, the Pareto front."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from midmask.evaluation.statistics.significance import Comparison, better_than


def label(number: int) -> str:
    """a, b, …, z, then a1, b1, …: names that can be written side by side without a gap."""
    letter, turn = chr(ord("a") + number % 26), number // 26
    return f"{letter}{turn}" if turn else letter


class RankRange(NamedTuple):
    """Ranks from the best to the worst that are consistent with the data, counted from 1."""

    best: int
    worst: int


def rank_ranges(comparisons: Sequence[Comparison]) -> dict[str, RankRange]:
    """System -> its ranks, from tests of all pairs on one measure.

    A system ranks behind all that are significantly better, and ahead of all that are significantly worse. Where the
    tests' correction covers all pairs (Bonferroni, Holm), all ranges hold the true ranks together with the probability
    1 - alpha (Mogstad, Romano, Shaikh and Wilhelm 2024, Review of Economic Studies 91, section 3).
    """
    beaten = better_than(comparisons)
    behind = {name: sum(name in others for others in beaten.values()) for name in beaten}
    return {name: RankRange(1 + behind[name], len(beaten) - len(others)) for name, others in beaten.items()}


def competition_ranks(means: Mapping[str, float]) -> dict[str, int]:
    """System -> its rank by its mean, the highest first; equal means share the best rank of theirs (1, 2, 2, 4)."""
    ascending = sorted(means.values())
    return {name: 1 + len(means) - bisect_right(ascending, mean) for name, mean in means.items()}


def on_front(values_NK: Sequence[Sequence[float]], modes: Sequence[Literal["max", "min"]]) -> list[bool]:
    """For each of N systems with K values, whether it is on the Pareto front: no other dominates it. Of systems that
    are equal in all, each is on the front if one is.

    Args:
        modes: whether more is better, for each of the K.
    """
    signs_K = np.array([1.0 if mode == "max" else -1.0 for mode in modes])
    gains_NK = np.asarray(values_NK, dtype=np.float64).reshape(len(values_NK), len(signs_K)) * signs_K
    beaten = [bool(((gains_NK >= own_K).all(axis=1) & (gains_NK > own_K).any(axis=1)).any()) for own_K in gains_NK]
    return [not is_beaten for is_beaten in beaten]
