"""Standard errors, intervals and Kendall's tau, against scipy and by hand; ranks that tests of all pairs allow."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import (
    IntervalEstimate,
    StandardError,
    Variance,
    interval,
    rank_correlation,
    standard_error,
)
from midmask.evaluation.statistics.ranks import RankRange, competition_ranks, rank_ranges
from midmask.evaluation.statistics.seeds import SeedSpread, deviation, read_sample, seed_spread
from midmask.evaluation.statistics.significance import compare
from midmask.evaluation.statistics.task_ranks import task_ranks
from tests.support.evaluation.per_query import drawn, table


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


def test_the_deviation_is_that_of_a_sample():
    assert deviation([0.1, 0.2, 0.6]) == pytest.approx(stats.tstd([0.1, 0.2, 0.6]))
    assert deviation([0.7]) == 0.0


def test_pooling_leaves_single_runs_out():
    assert seed_spread([[0.5], [0.7]]) == SeedSpread(0.0, 0)
    assert seed_spread([[0.5], [0.1, 0.3], [0.6, 0.6]]) == SeedSpread(pytest.approx(0.1), 2)
    assert SeedSpread(0.0, 0).variances(1, 1) == []
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


def holm_ranges(means: dict[str, float], p_values: dict[tuple[str, str], float]) -> dict[str, RankRange]:
    """Ranks behind all that are surely better and ahead of all that are surely worse, by Holm's steps by hand."""
    surely: set[tuple[str, str]] = set()
    for turn, pair in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[pair] * (len(p_values) - turn) >= 0.05:
            break
        surely.add(pair)
    assert 0 < len(surely) < len(p_values), "a case that tests nothing"
    found = {}
    for name in means:
        differs = [other for other in means if {(name, other), (other, name)} & surely]
        better = sum(means[other] > means[name] for other in differs)
        found[name] = RankRange(1 + better, len(means) - len(differs) + better)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_is_behind_the_surely_better_and_ahead_of_the_surely_worse(seed: int) -> None:
    draw = np.random.default_rng(seed)
    hard = draw.normal(0.5, 0.2, 80)
    values = {f"s{at}": hard + 0.03 * at + draw.normal(0, 0.1, 80) for at in range(6)}
    found = rank_ranges(compare({name: table(own) for name, own in values.items()}, measure="RR@10"))
    p_values = {
        (one, other): float(stats.ttest_rel(values[one], values[other]).pvalue)
        for one, other in combinations(values, 2)
    }
    means = {name: float(own.mean()) for name, own in values.items()}
    assert found == holm_ranges(means, p_values)
    for name, ranks in found.items():
        rank = 1 + sum(mean > means[name] for mean in means.values())
        assert ranks.best <= rank <= ranks.worst, "the rank by the means is always allowed"


def exact_p(difference: np.ndarray) -> float:
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
    p_values = {
        pair: exact_p(np.subtract(*[[*values[name].values()] for name in pair])) for pair in combinations(levels, 2)
    }
    means = {name: float(np.mean([*own.values()])) for name, own in values.items()}
    assert {name: one.mean for name, one in found.items()} == pytest.approx(means)
    assert {name: one.allowed for name, one in found.items()} == holm_ranges(means, p_values)


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
