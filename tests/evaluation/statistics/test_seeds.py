"""Values by seed and query, and the variance that seeds add: against scipy, and as simulated."""

import numpy as np
import pytest
from scipy import stats

from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import Variance, standard_error
from midmask.evaluation.statistics.seeds import SeedSpread, deviation, read_sample, seed_spread
from tests.support.evaluation.per_query import drawn, table


def test_a_sample_has_a_row_for_each_seed_and_its_queries_in_order():
    seeds = [drawn(seed, count=11) for seed in range(3)]
    turned = [table(own).take(np.random.default_rng(row).permutation(11)) for row, own in enumerate(seeds)]
    sample = read_sample("a", turned, "RR@10")
    order = sorted(range(11), key=lambda row: f"q{row}")
    assert sample.queries == tuple(f"q{row}" for row in order)
    assert sample.values_SQ.tolist() == [own[order].tolist() for own in seeds]
    assert sample.means_Q == pytest.approx(np.mean(seeds, axis=0)[order])


def test_the_mean_over_seeds_is_the_same_to_the_last_bit_in_any_order_of_the_seeds():
    """Two systems whose seeds found a passage at the same ranks, in another order, do not differ."""
    seeds = [table([1 / 3, 0.1]), table([1.0, 1 / 7]), table([0.2, 1 / 9])]
    forward, backward = (read_sample("a", own, "RR@10").means_Q for own in (seeds, seeds[::-1]))
    assert forward.tolist() == backward.tolist()


def test_a_system_without_values_is_refused():
    with pytest.raises(UserError, match="system 'a' has no table of values"):
        read_sample("a", [], "RR@10")


def test_the_deviation_is_that_of_a_sample():
    assert deviation([0.1, 0.2, 0.6]) == pytest.approx(stats.tstd([0.1, 0.2, 0.6]))
    assert deviation([0.7]) == 0.0


def test_pooling_leaves_single_runs_out():
    assert seed_spread([[0.5], [0.7]]) == SeedSpread(0.0, 0)
    assert seed_spread([[0.5], [0.1, 0.3], [0.6, 0.6]]) == SeedSpread(pytest.approx(0.1), 2)
    assert SeedSpread(0.0, 0).variances(1, 1) == []


def test_each_system_of_a_difference_adds_the_variance_of_its_own_number_of_seeds():
    assert SeedSpread(0.1, 4).variances(2, 5) == [Variance(pytest.approx(0.01 / 2 + 0.01 / 5), 4)]


def test_both_parts_keep_the_level_and_find_what_they_say_they_find():
    """2,000 sweeps of two trials, one seed each, with a true difference of nothing, and of the detectable difference;
    the seeds' spread is estimated from six other runs.
    """
    rng, queries, query_sd, seed_sd = np.random.default_rng(1), 100, 0.3, 0.02
    truth = np.sqrt(query_sd**2 / queries + 2 * seed_sd**2)
    rejected = {"nothing": 0, "detectable": 0}
    for _ in range(2000):
        spread = seed_spread([rng.normal(0, seed_sd, 3) for _ in range(3)])
        shift = rng.normal(0, seed_sd, 2)
        noise = rng.normal(0, query_sd, queries) + shift[0] - shift[1]
        for name, true in (("nothing", 0.0), ("detectable", (1.96 + 0.84) * truth)):
            error = standard_error([Variance.of_mean(noise + true), *spread.variances(1, 1)])
            rejected[name] += error.p(float((noise + true).mean())) < 0.05
    assert 0.02 <= rejected["nothing"] / 2000 <= 0.07
    assert 0.72 <= rejected["detectable"] / 2000 <= 0.86
