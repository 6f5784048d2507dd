"""Measures over a person's judgements, team-draft interleaving, and what is to be judged next."""

from collections import Counter
from dataclasses import replace
from math import comb, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from midmask.choice.interleaving import interleaving_preference, team_draft
from midmask.choice.judged import JudgedPair, answerable, judged_pair, judged_systems, next_to_judge, plain_words, pool
from midmask.choice.judgements import Judgement, JudgementJournal, query_id
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


NAMES = [f"d{number}" for number in range(14)]
lists = some.builds(lambda names, stop: names[:stop], some.permutations(NAMES), some.integers(0, len(NAMES)))


@given(own=lists, other=lists, query=some.text(min_size=1), k=some.integers(1, 12))
def test_no_passage_stands_twice_and_the_teams_are_equal(own: list[str], other: list[str], query: str, k: int) -> None:
    found = team_draft({"a": own, "b": other}, query, k)
    shown = [pick.doc_id for pick in found]
    assert len(shown) == len(set(shown)) <= k
    sizes = Counter(pick.team for pick in found)
    assert abs(sizes["a"] - sizes["b"]) <= 1
    assert found == team_draft({"b": other, "a": own}, query, k), "neither position nor order of the names counts"


@given(own=lists, other=lists, query=some.text(min_size=1))
def test_each_team_proposes_its_best_that_is_left(own: list[str], other: list[str], query: str) -> None:
    ranked = {"a": own, "b": other}
    found = team_draft(ranked, query, 10)
    for place, pick in enumerate(found):
        taken = {before.doc_id for before in found[:place]}
        assert pick.doc_id == next(one for one in ranked[pick.team] if one not in taken)
    rounds = [{pick.team for pick in found[at : at + 2]} for at in range(0, len(found) - 1, 2)]
    assert all(teams == {"a", "b"} for teams in rounds)
    if len(found) < 10:
        left = [set(one) - {pick.doc_id for pick in found} for one in ranked.values()]
        assert not all(left), "it ends early only where a system has nothing left"


def test_the_coin_is_fair_and_of_the_query() -> None:
    """Of 2,000 queries a system begins half, within four standard deviations (22.4 each)."""
    drafts = [team_draft({"a": NAMES[:5], "b": NAMES[5:10]}, f"query {number}", 4) for number in range(2000)]
    for place in (0, 2):
        assert abs(sum(found[place].team == "a" for found in drafts) - 1000) < 90
    both = sum(found[0].team == found[2].team for found in drafts)
    assert abs(both - 1000) < 90, "each round has a coin of its own"


def credited(*outcomes: tuple[int, int]) -> JudgementJournal:
    """A query for each pair of credits of a and b."""
    rows = []
    for number, (own, other) in enumerate(outcomes):
        for team, count in (("a", own), ("b", other)):
            rows += [Judgement(f"q{number}", f"{team}{at}", 1, "blind", "b", "a", team) for at in range(count)]
        rows.append(Judgement(f"q{number}", "none", 0, "blind", "a", "b", "a"))
    return JudgementJournal(tuple(rows))


def test_the_preference_is_a_sign_test_over_queries() -> None:
    outcomes = [(2, 0)] * 9 + [(0, 1)] * 2 + [(1, 1), (0, 0)]
    found = interleaving_preference(credited(*outcomes), "a", "b")
    assert (found.wins, found.losses, found.ties, found.share) == (9, 2, 2, pytest.approx(9 / 11))
    by_hand = 2 * sum(comb(11, count) for count in (9, 10, 11)) / 2**11
    assert found.p == pytest.approx(by_hand) and not found.significant
    turned = interleaving_preference(credited(*outcomes), "b", "a")
    assert (turned.wins, turned.losses, turned.p) == (2, 9, pytest.approx(by_hand))
    assert turned.low == pytest.approx(1 - found.high)


def test_only_blind_judgements_of_this_pair_count_and_the_last_one() -> None:
    rows = [
        Judgement("q", "x", 1, "blind", "a", "b", "a"),
        Judgement("q", "x", 0, "blind", "a", "b", "a"),
        Judgement("q", "y", 1, "blind", "a", "b", "b"),
        Judgement("q", "z", 1, "side by side", "a", "b", "a"),
        Judgement("p", "x", 1, "blind", "a", "c", "a"),
        Judgement("o", "x", 1, "blind", "a", "b", "a"),
        Judgement("o", "x", None, "blind", "a", "b", "a"),
    ]
    found = interleaving_preference(JudgementJournal(tuple(rows)), "a", "b")
    assert (found.wins, found.losses, found.ties) == (0, 1, 0)
    nothing = interleaving_preference(JudgementJournal(()), "a", "b")
    assert (nothing.p, nothing.low, nothing.high) == (1.0, 0.0, 1.0)
