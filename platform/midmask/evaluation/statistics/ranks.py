"""Ranks by a mean, and which ranks the data allow: between systems that are surely better and those surely worse."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from midmask.evaluation.statistics.significance import Comparison, better_than


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
