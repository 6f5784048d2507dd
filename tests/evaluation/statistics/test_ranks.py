"""Ranks that tests of all pairs allow, against a count of the pairs."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.evaluation.statistics.ranks import rank_ranges
from midmask.evaluation.statistics.significance import compare

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
