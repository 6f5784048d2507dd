"""Orders of systems: groups of ties, ranks that the tests allow, the Pareto front.

A tie group is a largest possible set of systems of which no two differ significantly (the compact letter display of
statistics). Hence two systems share a letter if, and only if, they do not differ significantly; every system has a
letter; and no group is part of another. Not being distinguishable is not transitive, so a system may be in several
groups: "ab" stands between an "a" and a "b".
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from midmask.evaluation.statistics.significance import Comparison, better_than

Group = tuple[str, ...]


def tie_groups(comparisons: Sequence[Comparison]) -> list[Group]:
    """The groups, found by insert-and-absorb (Piepho 2004, without its sweeping): best systems first.

    Starts with all systems in one group; each significant pair splits every group that holds both into one without the
    first and one without the second; groups that are part of another are dropped. Members stand in the order of their
    means (ties in the order of the comparisons), groups in the order of their members.

    Raises:
        ValueError: if the comparisons are not all pairs of their systems, each once, on one measure.
    """
    means: dict[str, float] = {}
    for row in comparisons:
        means.setdefault(row.baseline, row.baseline_mean)
        means.setdefault(row.system, row.mean)
    compared = sorted(sorted((row.system, row.baseline)) for row in comparisons)
    pairs = sorted(sorted(pair) for pair in combinations(means, 2))
    if compared != pairs or len({row.measure for row in comparisons}) > 1:
        raise ValueError("tie groups need every pair of systems compared once on one measure: compare without baseline")
    groups = [frozenset(means)] if means else []
    for row in comparisons:
        if row.significant:
            groups = _split_groups(groups, row.system, row.baseline)
    place = {name: at for at, name in enumerate(sorted(means, key=lambda name: -means[name]))}
    ordered = sorted(sorted(place[name] for name in group) for group in groups)
    names = list(place)
    return [tuple(names[at] for at in group) for group in ordered]


def _split_groups(groups: list[frozenset[str]], one: str, other: str) -> list[frozenset[str]]:
    parted: set[frozenset[str]] = set()
    for group in groups:
        parted.update((group - {one}, group - {other}) if {one, other} <= group else (group,))
    return [group for group in parted if not any(group < larger for larger in parted)]


def letters(groups: Sequence[Group]) -> dict[str, str]:
    """System -> the letters of its groups; "a" is the group of the best system."""
    shown: dict[str, str] = {}
    for number, group in enumerate(groups):
        for name in group:
            shown[name] = shown.get(name, "") + label(number)
    return shown


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
