from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.evaluation.statistics.significance import Comparison, compare
from midmask.evaluation.ties import label, letters, tie_groups
from tests.support.evaluation.per_query import drawn, table


def row(system: str, baseline: str, means: dict[str, float], significant: bool, measure: str = "RR@10") -> Comparison:
    own, base = means[system], means[baseline]
    numbers = {"difference": own - base, "low": 0.0, "high": 0.0, "p": 0.5, "p_corrected": 0.5, "effect": 0.0}
    return Comparison(system, baseline, measure, 10, 1, own, base, detectable=0.0, significant=significant, **numbers)


@st.composite
def families(draw: st.DrawFn) -> tuple[dict[str, float], set[frozenset[str]], list[Comparison]]:
    """Systems with means, the pairs that differ (any, however odd), and their comparisons in any order."""
    names = "ABCDEFG"[: draw(st.integers(2, 7))]
    means = {name: draw(st.sampled_from([0.1, 0.2, 0.3])) for name in names}
    pairs = list(combinations(names, 2))
    apart = {frozenset(pair) for pair in pairs if draw(st.booleans())}
    rows = [row(*draw(st.permutations(pair)), means, frozenset(pair) in apart) for pair in draw(st.permutations(pairs))]
    return means, apart, rows


@given(families())
def test_groups_are_all_largest_sets_without_a_significant_pair(family):
    """Against every subset of the systems."""
    means, apart, rows = family
    subsets = map(frozenset, chain.from_iterable(combinations(means, size) for size in range(1, len(means) + 1)))
    tied = [one for one in subsets if not any(frozenset(pair) in apart for pair in combinations(one, 2))]
    largest = {one for one in tied if not any(one < other for other in tied)}
    groups = tie_groups(rows)
    assert {frozenset(group) for group in groups} == largest and len(groups) == len(largest)


@given(families())
def test_two_systems_share_a_letter_exactly_when_they_do_not_differ(family):
    means, apart, rows = family
    shown = letters(tie_groups(rows))
    assert shown.keys() == means.keys()
    for pair in combinations(means, 2):
        assert bool(set(shown[pair[0]]) & set(shown[pair[1]])) == (frozenset(pair) not in apart)


@given(families())
def test_the_best_system_is_an_a_and_groups_stand_by_their_best_members(family):
    means, _, rows = family
    groups = tie_groups(rows)
    assert means[groups[0][0]] == max(means.values()) and letters(groups)[groups[0][0]].startswith("a")
    for group in groups:
        assert [means[name] for name in group] == sorted((means[name] for name in group), reverse=True)
    best = [means[group[0]] for group in groups]
    assert best == sorted(best, reverse=True)


def test_a_chain_of_three_is_two_groups():
    """The ends differ, the middle from neither: a, ab, b."""
    means = {"low": 0.1, "middle": 0.2, "high": 0.3}
    rows = [row("middle", "low", means, False), row("high", "low", means, True), row("high", "middle", means, False)]
    assert tie_groups(rows) == [("high", "middle"), ("middle", "low")]
    assert letters(tie_groups(rows)) == {"high": "a", "middle": "ab", "low": "b"}


def test_groups_of_real_comparisons():
    systems = {name: table(drawn(seed, shift=shift)) for seed, (name, shift) in enumerate([("x", 0), ("y", 0.5)])}
    systems["z"] = table(drawn(7, shift=0.02))
    assert tie_groups(compare(systems, measure="RR@10")) == [("y",), ("x", "z")]
    assert tie_groups([]) == []


def test_not_all_pairs_is_a_bug():
    systems = {name: table(drawn(seed)) for seed, name in enumerate("xyz")}
    pairs = compare(systems, measure="RR@10")
    for rows in (compare(systems, measure="RR@10", baseline="x"), [*pairs, pairs[0]], pairs[1:]):
        with pytest.raises(ValueError, match="every pair of systems compared once"):
            tie_groups(rows)
    means = dict.fromkeys("xyz", 0.0)
    mixed = [row("x", "y", means, True), row("y", "z", means, True), row("x", "z", means, True, measure="AP")]
    with pytest.raises(ValueError, match="on one measure"):
        tie_groups(mixed)


def test_letters_after_z_are_numbered():
    assert [label(number) for number in (0, 25, 26, 53)] == ["a", "z", "a1", "b2"]
