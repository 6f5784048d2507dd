"""Tie groups: systems that a comparison of all pairs cannot distinguish (the compact letter display of statistics).

A group is a largest possible set of systems of which no two differ significantly. Hence two systems share a letter if,
and only if, they do not differ significantly; every system has a letter; and no group is part of another. Not being
distinguishable is not transitive, so a system may be in several groups: "ab" stands between an "a" and a "b".
"""

from collections.abc import Sequence
from itertools import combinations

from midmask.evaluation.statistics.significance import Comparison

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
    found = sorted(sorted((row.system, row.baseline)) for row in comparisons)
    pairs = sorted(sorted(pair) for pair in combinations(means, 2))
    if found != pairs or len({row.measure for row in comparisons}) > 1:
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
