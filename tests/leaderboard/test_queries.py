"""Wins, losses and ties, in all and by kinds of queries, against counts by hand."""

import itertools
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.artifact import Place
from midmask.leaderboard.queries import Pairing, pair_systems, widest
from midmask.leaderboard.query_groups import groups, quartiles, query_traits

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0])
RUNS = st.dictionaries(st.sampled_from([f"q{n:02d}" for n in range(15)]), SCORES, min_size=1, max_size=15)


def table(values: dict[str, float], measure: str = "RR@10") -> pa.Table:
    """Values of a measure, and of another one that must not count."""
    rows = [(query, name, value) for query, value in values.items() for name in (measure, "other")]
    return pa.table(
        {
            "query_id": pa.array([query for query, _, _ in rows], pa.string()),
            "measure": pa.array([name for _, name, _ in rows], pa.string()),
            "value": pa.array([value if name == measure else 1 - value for _, name, value in rows], pa.float64()),
        }
    )


@given(own=RUNS, base=RUNS)
def test_counts_are_those_of_a_loop_over_the_shared_queries(own: dict[str, float], base: dict[str, float]) -> None:
    found = pair_systems(table(own), table(base), "RR@10")
    wins = losses = ties = 0
    for query in own:
        if query in base:
            wins += own[query] > base[query]
            losses += own[query] < base[query]
            ties += own[query] == base[query]
    assert (found.wins, found.losses, found.ties) == (wins, losses, ties)
    assert found.left_out == len({*own} ^ {*base})
    assert found.queries == tuple(sorted({*own} & {*base}))


@given(own=RUNS, base=RUNS, count=st.integers(1, 16), side=st.sampled_from(["either", "wins", "losses"]))
def test_no_query_that_is_left_out_differs_more(
    own: dict[str, float], base: dict[str, float], count: int, side
) -> None:
    pairing = pair_systems(table(own), table(base), "RR@10")
    chosen = widest(pairing, count, side)
    sizes = {
        query: {"either": abs, "wins": lambda size: size, "losses": lambda size: -size}[side](own[query] - base[query])
        for query in pairing.queries
    }
    eligible = {query: size for query, size in sizes.items() if size > 0}
    assert len(chosen) == min(count, len(eligible)) and set(chosen) <= set(eligible)
    assert [eligible[query] for query in chosen] == sorted((eligible[query] for query in chosen), reverse=True)
    smallest = min((eligible[query] for query in chosen), default=math.inf)
    assert all(size <= smallest + 1e-12 for query, size in eligible.items() if query not in chosen)


def test_sums_that_differ_in_the_last_bit_are_a_tie() -> None:
    found = pair_systems(table({"a": 0.1 + 0.2}), table({"a": 0.3}), "RR@10")
    assert (found.wins, found.losses, found.ties) == (0, 0, 1) and widest(found, 5) == []
    found = pair_systems(table({"b": 1.0, "a": 1.0, "c": 0.0}), table({"b": 0.5, "a": 0.5, "c": 0.7}), "RR@10")
    assert widest(found, 3) == ["c", "a", "b"], "equal differences stand in the order of their ids"


def test_seeds_are_joined_by_their_means_on_the_queries_that_all_have() -> None:
    seeds = [table({"a": 0.2, "b": 1.0, "c": 0.5}), table({"a": 0.6, "b": 0.0})]
    found = pair_systems(seeds, table({"a": 0.3, "b": 0.5, "c": 0.1}), "RR@10")
    assert found.queries == ("a", "b") and found.left_out == 1
    assert found.own_N.tolist() == pytest.approx([0.4, 0.5]) and (found.wins, found.ties, found.losses) == (1, 1, 0)


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
