"""Variances, standard errors and intervals against scipy's tests and by hand; Kendall's tau by counting pairs."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from midmask.evaluation.statistics.intervals import (
    IntervalEstimate,
    StandardError,
    Variance,
    interval,
    rank_correlation,
    standard_error,
)


def test_of_one_mean_it_is_the_t_test():
    values = np.random.default_rng(0).normal(0.05, 0.2, 40)
    error, reference = standard_error([Variance.of_mean(values)]), stats.ttest_1samp(values, 0)
    assert error.p(float(values.mean())) == pytest.approx(reference.pvalue)
    for level in (0.05, 0.01):
        wanted = reference.confidence_interval(1 - level)
        assert error.margin(level) == pytest.approx((wanted.high - wanted.low) / 2)


def test_variances_add_and_degrees_of_freedom_are_satterthwaites():
    found = interval(0.3, [Variance(0.02, 99), Variance(0.05, 2), Variance(0.0, 2)])
    freedom = 0.07**2 / (0.02**2 / 99 + 0.05**2 / 2)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(0.07))
    assert found.detectable == pytest.approx(
        (stats.t.ppf(0.975, freedom) + stats.t.ppf(0.8, freedom)) * math.sqrt(0.07)
    )


def test_variances_too_small_to_be_squared_have_degrees_of_freedom():
    assert standard_error([Variance(1e-200, 10), Variance(1e-200, 10)]).freedom == pytest.approx(20)


def test_two_means_have_welchs_test():
    first, second = [0.50, 0.52, 0.57], [0.40, 0.41]
    error = standard_error([Variance.of_mean(first), Variance.of_mean(second)])
    reference = stats.ttest_ind(first, second, equal_var=False)
    assert error.p(float(np.mean(first) - np.mean(second))) == pytest.approx(reference.pvalue)


def test_what_does_not_vary_is_certain_and_what_was_seen_once_is_not_known():
    assert interval(0.3, [Variance(0.0, 5)]) == IntervalEstimate(0.3, 0.3, 0.3, 0.0)
    assert (StandardError(0.0, 1).p(0.3), StandardError(0.0, 1).p(0.0)) == (0.0, 1.0)
    once = standard_error([Variance(0.02, 99), Variance.of_mean([0.5])])
    assert (once.p(0.3), once.margin(), once.detectable()) == (1.0, math.inf, math.inf)


def test_a_share_varies_as_the_binomial():
    found = Variance.of_share(0.3, 50)
    assert (found.value, found.freedom) == (pytest.approx(stats.binom.var(50, 0.3) / 50**2), 49)


@pytest.mark.parametrize("count", [10, 50, 5000])
def test_the_smallest_detectable_difference_is_found_four_times_in_five(count: int):
    """The t-test's power by the noncentral t distribution, an approximation apart from the one in use."""
    effect = StandardError(1.0, count - 1).detectable()
    limit = stats.t.ppf(0.975, count - 1)
    power = stats.nct.sf(limit, count - 1, effect) + stats.nct.cdf(-limit, count - 1, effect)
    assert power == pytest.approx(0.8, abs=0.02)


def test_tau_is_the_share_of_pairs_in_the_same_order():
    """Concordant less discordant pairs, over the geometric mean of the pairs that are not tied in the one and other."""
    first, second = (np.random.default_rng(seed).integers(0, 6, 12) for seed in (3, 4))
    signs = np.array([np.sign([first[a] - first[b], second[a] - second[b]]) for a, b in combinations(range(12), 2)])
    found = rank_correlation(first.tolist(), second.tolist())
    assert found.tau == pytest.approx(np.prod(signs, axis=1).sum() / np.sqrt(np.prod((signs != 0).sum(axis=0))))
    assert found.count == 12 and found.low < found.tau < found.high


def test_the_interval_covers_the_true_tau():
    """Of normal pairs with correlation 0.6, tau is 2/π·arcsin 0.6 (Greiner)."""
    rng, true, covered = np.random.default_rng(5), 2 / np.pi * np.arcsin(0.6), 0
    for _ in range(300):
        first = rng.normal(size=15)
        second = 0.6 * first + 0.8 * rng.normal(size=15)
        found = rank_correlation(first.tolist(), second.tolist())
        covered += found.low <= true <= found.high
    assert 0.91 <= covered / 300 <= 0.99


def test_a_perfect_order_of_few_is_no_certainty():
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    found, turned = rank_correlation(values, values), rank_correlation(values, values[::-1])
    assert found.tau == pytest.approx(1) and 0 < found.low < 0.5 and found.is_positive
    assert turned.tau == pytest.approx(-1) and turned.high < 0 and not turned.is_positive


def test_few_or_equal_values_have_no_interval():
    few = rank_correlation([0.1, 0.2], [0.2, 0.3])
    assert few.tau == pytest.approx(1) and few.low is None and not few.is_positive
    equal = rank_correlation([0.1] * 9, [0.2] * 9)
    assert equal.tau is None and not equal.is_positive
