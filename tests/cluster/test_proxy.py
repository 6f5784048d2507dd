"""Rungs as proxies: Kendall's tau by counting pairs, an interval that covers, survivors alone."""

from itertools import combinations

import numpy as np
import pytest

from midmask.cluster.proxy import interval, proxies
from midmask.cluster.study import Outcome


def outcome(*values: float, complete: bool = True) -> Outcome:
    return Outcome({}, dict(enumerate(values, start=1)), complete)


def tau_b(pairs) -> float:
    """Concordant less discordant pairs, over the geometric mean of the pairs that are not tied in the one and other."""
    signs = [(np.sign(a[0] - b[0]), np.sign(a[1] - b[1])) for a, b in combinations(pairs, 2)]
    untied = [sum(pair[side] != 0 for pair in signs) for side in (0, 1)]
    return float(sum(first * second for first, second in signs) / np.sqrt(untied[0] * untied[1]))


def test_each_rung_is_held_against_the_end_over_the_trials_that_reached_it():
    rng = np.random.default_rng(3)
    ended = [tuple(rng.integers(0, 6, 3) / 10) for _ in range(12)]
    pruned = [outcome(0.9, complete=False), outcome(0.9, 0.9, complete=False)]
    found = proxies([*(outcome(*values) for values in ended), *pruned], (0.25, 0.5, 1.0))
    assert [proxy.share for proxy in found] == [0.25, 0.5]
    for number, proxy in enumerate(found):
        assert proxy.trials == 12
        assert proxy.tau == pytest.approx(tau_b([(values[number], values[2]) for values in ended]))
        assert (proxy.low, proxy.high) == interval(proxy.tau, 12)
        assert proxy.low < proxy.tau < proxy.high


def test_the_interval_covers_the_true_tau():
    """Of normal pairs with correlation 0.6, tau is 2/π·arcsin 0.6 (Greiner)."""
    rng, true, covered = np.random.default_rng(5), 2 / np.pi * np.arcsin(0.6), 0
    for _ in range(300):
        first = rng.normal(size=15)
        second = 0.6 * first + 0.8 * rng.normal(size=15)
        (found,) = proxies([outcome(a, b) for a, b in zip(first, second, strict=True)], (0.5, 1.0))
        covered += found.low <= true <= found.high
    assert 0.91 <= covered / 300 <= 0.99


def test_a_perfect_order_of_few_trials_is_no_certainty():
    (found,) = proxies([outcome(value, value) for value in (0.1, 0.2, 0.3, 0.4, 0.5)], (0.5, 1.0))
    assert found.tau == pytest.approx(1) and 0 < found.low < 0.5 and found.is_shown_to_rank
    (reversed_,) = proxies([outcome(-value, value) for value in (0.1, 0.2, 0.3, 0.4, 0.5)], (0.5, 1.0))
    assert reversed_.tau == pytest.approx(-1) and reversed_.high < 0 and not reversed_.is_shown_to_rank


def test_few_or_equal_trials_tell_nothing():
    (few,) = proxies([outcome(0.1, 0.2), outcome(0.2, 0.3)], (0.5, 1.0))
    assert few.tau == pytest.approx(1) and few.low is None and not few.is_shown_to_rank
    (equal,) = proxies([outcome(0.1, 0.2)] * 9, (0.5, 1.0))
    assert equal.tau is None and not equal.is_shown_to_rank
    assert proxies([outcome(0.1)], (1.0,)) == []
