"""Team-draft interleaving: its invariants, its fairness, and the test of what is preferred."""

from collections import Counter
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as some

from midmask.choice.interleaving import interleaving_preference, team_draft
from midmask.choice.judgements import Judgement, JudgementJournal

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


def judged(*outcomes: tuple[int, int]) -> JudgementJournal:
    """A query for each pair of credits of a and b."""
    rows = []
    for number, (own, other) in enumerate(outcomes):
        for team, count in (("a", own), ("b", other)):
            rows += [Judgement(f"q{number}", f"{team}{at}", 1, "blind", "b", "a", team) for at in range(count)]
        rows.append(Judgement(f"q{number}", "none", 0, "blind", "a", "b", "a"))
    return JudgementJournal(tuple(rows))


def test_the_preference_is_a_sign_test_over_queries() -> None:
    outcomes = [(2, 0)] * 9 + [(0, 1)] * 2 + [(1, 1), (0, 0)]
    found = interleaving_preference(judged(*outcomes), "a", "b")
    assert (found.wins, found.losses, found.ties, found.share) == (9, 2, 2, pytest.approx(9 / 11))
    by_hand = 2 * sum(comb(11, count) for count in (9, 10, 11)) / 2**11
    assert found.p == pytest.approx(by_hand) and not found.significant
    turned = interleaving_preference(judged(*outcomes), "b", "a")
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
