"""Measures over a person's judgements: condensed lists, pairs, sentences, and what is to be judged next."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest
from scipy import stats

from midmask.choice.judged import (
    JudgedPair,
    answerable,
    judged_pair,
    judged_systems,
    next_to_judge,
    plain_words,
    pool,
)
from midmask.choice.judgements import query_id
from tests.support.choice.searched import verdict

GRADES = {"p": {"a": 1, "b": 0, "c": 1}, "q": {"x": 0, "y": 1}, "r": {"z": 0}}


def test_unjudged_passages_count_as_not_relevant() -> None:
    """By hand: of u, b, u2, a the relevant a stands fourth; c, relevant too, is not found."""
    lists = {"one": {"p": ["u", "b", "u2", "a"], "q": ["y"]}, "two": {"p": ["a", "c"], "q": ["u", "x", "u2"]}}
    ideal = 1 + 1 / log2(3)
    found = {row.label: row for row in judged_systems(lists, GRADES)}
    assert found["one"].value == pytest.approx((1 / log2(5) / ideal + 1) / 2)
    assert found["two"].value == pytest.approx((1 + 0) / 2)
    assert found["one"].queries == 2 and found["one"].judged == pytest.approx(3 / 5)
    assert found["two"].judged == pytest.approx(3 / 5)
    assert [row.label for row in judged_systems(lists, GRADES)] == ["one", "two"]


def test_a_query_counts_once_a_passage_is_relevant() -> None:
    assert answerable(GRADES) == ["p", "q"]
    assert judged_systems({"one": {"r": ["z"]}}, {"r": {"z": 0}}) == []
    assert judged_pair({"one": {"r": ["z"]}, "two": {"r": []}}, {"r": {"z": 0}}, "one", "two", 0.9) is None


def test_a_pair_has_the_t_interval_of_its_differences() -> None:
    """Against scipy, on lists in which one relevant passage stands at a drawn rank."""
    draw = np.random.default_rng(5)
    grades = {f"q{number}": {f"d{at}": int(at == 0) for at in range(8)} for number in range(20)}
    lists = {
        label: {query: draw.permutation([f"d{at}" for at in range(8)]).tolist() for query in grades}
        for label in ("own", "other")
    }
    gains = [
        1 / log2(2 + lists["own"][query].index("d0")) - 1 / log2(2 + lists["other"][query].index("d0"))
        for query in grades
    ]
    found = judged_pair(lists, grades, "own", "other", 0.9)
    assert found is not None
    expected = stats.ttest_1samp(gains, 0).confidence_interval(0.9)
    assert (found.difference, found.low, found.high) == pytest.approx((np.mean(gains), *expected))
    assert found.wins == sum(gain > 0 for gain in gains) and found.losses == sum(gain < 0 for gain in gains)
    assert found.queries == 20 and found.ties == 20 - found.wins - found.losses


def pair(**changes: float) -> JudgedPair:
    return replace(JudgedPair("retromae · dense", "bm25", 20, 5, 5, 0.06, 0.03, 0.09), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "agree with the verdict"),
        ({"low": -0.01}, "do not contradict the verdict"),
        ({"low": 0.2, "high": 0.4}, "a larger gain than the verdict expected"),
        ({"low": -0.4, "high": -0.2}, "a smaller gain than the verdict expected"),
        ({"wins": 2, "ties": 0, "losses": 1}, "too few to compare"),
        ({"first": "splade · lexical"}, "+0.030 nDCG@10 (+0.010 to +0.050)"),
    ],
)
def test_judgements_are_held_against_the_estimate(changes: dict[str, float], words: str) -> None:
    assert words in " ".join(plain_words(pair(**changes), verdict()))


def test_the_pool_is_what_any_system_found_in_an_order_that_shows_nothing() -> None:
    lists = {"one": [f"d{at}" for at in range(30)], "two": [f"d{at}" for at in range(29, -1, -1)]}
    found = pool(lists, "some query", {"d0": 1, "d29": 0})
    assert set(found) == {f"d{at}" for at in (*range(1, 10), *range(20, 29))} and len(found) == 18
    assert found == pool(dict(reversed(lists.items())), "some query", {"d0": 1, "d29": 0})
    assert found != sorted(found) and found != pool(lists, "another query", {"d0": 1, "d29": 0})
    assert pool({"one": []}, "some query", {}) == []


def test_the_next_is_of_the_first_query_that_is_not_judged_to_its_end() -> None:
    ranked = {"first": {"one": ["a", "b"]}, "second": {"one": ["c"]}}
    grades: dict[str, dict[str, int]] = {}
    seen = []
    while found := next_to_judge(ranked, ranked.__getitem__, grades):
        query, left = found
        seen.append((query, left[0]))
        grades.setdefault(query_id(query), {})[left[0]] = 0
    assert sorted(seen[:2]) == [("first", "a"), ("first", "b")] and seen[2:] == [("second", "c")]
    skipped = frozenset({(query_id("first"), "a"), (query_id("first"), "b")})
    assert next_to_judge(ranked, ranked.__getitem__, {}, skipped) == ("second", ["c"])
