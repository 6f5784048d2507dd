"""Wins and losses by kinds of queries, against a loop over the queries."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.leaderboard.queries import Pairing
from midmask.leaderboard.query_groups import groups, quartiles, query_traits

NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=40)


def pairing(differences: list[float]) -> Pairing:
    names = tuple(f"q{number:02d}" for number in range(len(differences)))
    return Pairing(names, np.array(differences), np.zeros(len(differences)), 0)


@given(data=st.data(), numbers=NUMBERS, bounds=st.sets(st.integers(0, 12), max_size=4))
def test_groups_are_those_of_a_loop(data: st.DataObject, numbers: list[int], bounds: set[int]) -> None:
    steps = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])
    own = pairing(data.draw(st.lists(steps, min_size=len(numbers), max_size=len(numbers))))
    known = dict(zip(own.queries, numbers, strict=True))
    known.pop("q03", None)  # a query of which nothing is known
    edges = [-1, *sorted(bounds), 10**6]
    expected = []
    for low, high in itertools.pairwise(edges):
        inside = [query for query in own.queries if query in known and low < known[query] <= high]
        if inside:
            values = [own.own_N[own.queries.index(query)] for query in inside]
            least, most = min(known[query] for query in inside), max(known[query] for query in inside)
            counts = (sum(v > 0 for v in values), sum(v == 0 for v in values), sum(v < 0 for v in values))
            expected.append(
                (f"{least}" if least == most else f"{least} to {most}", *counts, pytest.approx(np.mean(values)))
            )
    found = groups(own, known, sorted(bounds))
    assert [(one.label, one.wins, one.ties, one.losses, one.difference) for one in found] == expected


@given(numbers=NUMBERS)
def test_a_quarter_of_the_queries_lies_below_each_quartile(numbers: list[int]) -> None:
    found = quartiles({f"q{number}": value for number, value in enumerate(numbers)})
    assert list(found) == sorted(set(found)) and len(found) <= 3
    at = {part: sorted(numbers)[(len(numbers) - 1) * part // 4] for part in (1, 2, 3)}
    assert set(found) == set(at.values())


def test_what_lies_elsewhere_is_named(tmp_path: Path) -> None:
    found = query_traits(Place(str(tmp_path / "gone")), ["q"])
    assert not found.words and not found.relevant and "nothing is there" in found.missing
