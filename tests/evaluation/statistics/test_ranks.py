"""Ranks that tests of all pairs allow, over queries and over collections, against Holm's procedure."""

from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.errors import UserError
from midmask.evaluation.statistics.ranks import RankRange, competition_ranks, rank_ranges
from midmask.evaluation.statistics.significance import compare
from midmask.evaluation.statistics.task_ranks import task_ranks

QUERIES = [f"q{number}" for number in range(80)]


def table(values: np.ndarray) -> pa.Table:
    return pa.table({"query_id": QUERIES, "measure": ["RR@10"] * len(QUERIES), "value": values})


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_is_behind_the_surely_better_and_ahead_of_the_surely_worse(seed: int) -> None:
    draw = np.random.default_rng(seed)
    hard = draw.normal(0.5, 0.2, len(QUERIES))
    values = {f"s{at}": hard + 0.03 * at + draw.normal(0, 0.1, len(QUERIES)) for at in range(6)}
    found = rank_ranges(compare({name: table(own) for name, own in values.items()}, measure="RR@10"))
    pairs = list(combinations(values, 2))
    p = {pair: float(stats.ttest_rel(values[pair[0]], values[pair[1]]).pvalue) for pair in pairs}
    surely, running = set(), 0.0
    for at, pair in enumerate(sorted(pairs, key=p.__getitem__)):  # Holm's steps, by hand
        running = max(running, (len(pairs) - at) * p[pair])
        if running < 0.05:
            surely.add(pair)
    assert 0 < len(surely) < len(pairs), "a case that tests nothing"
    for name, ranks in found.items():
        better = sum(name in pair and values[name].mean() < values[_other(pair, name)].mean() for pair in surely)
        worse = sum(name in pair and values[name].mean() > values[_other(pair, name)].mean() for pair in surely)
        assert ranks == (1 + better, len(values) - worse)
        rank = 1 + sum(own.mean() > values[name].mean() for own in values.values())
        assert ranks.best <= rank <= ranks.worst, "the rank by the means is always allowed"


def _other(pair: tuple[str, str], name: str) -> str:
    return pair[0] if pair[1] == name else pair[1]


def exact_p(difference: np.ndarray) -> float:
    """Two-sided: all signs of the ranks, by enumeration."""
    ranks = np.argsort(np.argsort(abs(difference))) + 1
    middle = ranks.sum() / 2
    own = abs(ranks[difference > 0].sum() - middle)
    every = [abs(ranks[list(signs)].sum() - middle) for signs in product((False, True), repeat=len(ranks))]
    return float(np.mean(np.array(every) >= own - 1e-9))


def test_ranges_are_those_of_holm_over_exact_tests() -> None:
    draw = np.random.default_rng(3)
    tasks = [f"task {number}" for number in range(9)]
    hard = draw.uniform(0.2, 0.8, len(tasks))
    levels = {"best": 0.08, "second": 0.07, "third": 0.0, "last": -0.1}
    values = {
        name: dict(zip(tasks, hard + level + draw.normal(0, 0.01, len(tasks)), strict=True))
        for name, level in levels.items()
    }
    found = task_ranks(values, "nDCG@10")
    assert {name: one.rank for name, one in found.items()} == {"best": 1, "second": 2, "third": 3, "last": 4}
    pairs = [(one, other) for at, one in enumerate(levels) for other in list(levels)[:at]]
    p_values = {pair: exact_p(np.subtract(*[[*values[name].values()] for name in pair])) for pair in pairs}
    significant: set[tuple[str, str]] = set()
    for turn, pair in enumerate(sorted(pairs, key=lambda pair: p_values[pair])):
        if p_values[pair] * (len(pairs) - turn) >= 0.05:
            break
        significant.add(pair)
    assert 0 < len(significant) < len(pairs), "the test would say nothing else"
    means = {name: np.mean([*own.values()]) for name, own in values.items()}
    for name, one in found.items():
        differs = [other for other in levels if {(name, other), (other, name)} & significant]
        better = sum(means[other] > means[name] for other in differs)
        worse = sum(means[other] < means[name] for other in differs)
        assert one.allowed == RankRange(1 + better, len(levels) - worse) and one.mean == pytest.approx(means[name])


def test_five_collections_tell_nothing_apart_and_six_do() -> None:
    def ranges(count: int) -> list[RankRange]:
        values = {name: {f"t{n}": base + n / 100 for n in range(count)} for name, base in (("a", 0.9), ("b", 0.1))}
        return [one.allowed for one in task_ranks(values, "nDCG@10").values()]

    assert ranges(5) == [RankRange(1, 2)] * 2 and ranges(6) == [RankRange(1, 1), RankRange(2, 2)]


def test_one_system_equal_means_and_other_tasks() -> None:
    assert task_ranks({"alone": {"t": 0.5}}, "nDCG@10")["alone"].allowed == RankRange(1, 1)
    assert competition_ranks({"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}) == {"a": 2, "b": 1, "c": 2, "d": 4}
    with pytest.raises(UserError, match="cannot be paired"):
        task_ranks({"a": {"t": 0.5}, "b": {"u": 0.5}}, "nDCG@10")
