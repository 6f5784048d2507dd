"""Intervals, paired tests and their corrections, against scipy, by hand and by enumeration."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import (
    IntervalEstimate,
    SeedSpread,
    Variance,
    interval,
    read_sample,
    seed_spread,
)
from midmask.evaluation.statistics.ranks import RankRange, competition_ranks, rank_ranges
from midmask.evaluation.statistics.significance import (
    better_than,
    compare,
    correct,
    noise_floor,
)
from tests.support.benchmark.synthetic import noisy, table


def test_variances_add_and_degrees_of_freedom_are_satterthwaites():
    found = interval(0.3, [Variance(0.02, 99), Variance(0.05, 2), Variance(0.0, 2)])
    freedom = 0.07**2 / (0.02**2 / 99 + 0.05**2 / 2)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(0.07))
    quantiles = stats.t.ppf(0.975, freedom) + stats.t.ppf(0.8, freedom)
    assert found.detectable == pytest.approx(quantiles * math.sqrt(0.07))


def test_variances_too_small_to_be_squared_have_degrees_of_freedom():
    found = interval(0.0, [Variance(1e-200, 10), Variance(1e-200, 10)])
    assert found.high / math.sqrt(2e-200) == pytest.approx(stats.t.ppf(0.975, 20))


def test_two_means_have_welchs_test():
    first, second = [0.50, 0.52, 0.57], [0.40, 0.41]
    difference = float(np.mean(first) - np.mean(second))
    found = interval(difference, [Variance.of_mean(first), Variance.of_mean(second)])
    reference = stats.ttest_ind(first, second, equal_var=False)
    assert found.p == pytest.approx(reference.pvalue)


def test_what_does_not_vary_is_certain_and_what_was_seen_once_is_not_known():
    assert interval(0.3, [Variance(0.0, 5)]) == IntervalEstimate(0.3, 0.3, 0.3, 0.0, 0.0)
    assert [interval(value, [Variance(0.0, 5)]).p for value in (0.3, 0.0)] == [0.0, 1.0]
    once = interval(0.3, [Variance(0.02, 99), Variance.of_mean([0.5])])
    assert (once.p, once.low, once.high, once.detectable) == (1.0, -math.inf, math.inf, math.inf)


def test_a_share_varies_as_the_binomial():
    found = Variance.of_share(0.3, 50)
    assert (found.value, found.freedom) == (pytest.approx(stats.binom.var(50, 0.3) / 50**2), 49)


def test_a_sample_has_a_row_for_each_seed_and_its_queries_in_order():
    seeds = [noisy(seed, count=11) for seed in range(3)]
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


def test_pooling_leaves_single_runs_out():
    assert seed_spread([[0.5], [0.7]]) == SeedSpread(0.0, 0)
    assert seed_spread([[0.5], [0.1, 0.3], [0.6, 0.6]]) == SeedSpread(pytest.approx(0.1), 2)
    assert SeedSpread(0.0, 0).variances(1, 1) == []
    assert SeedSpread(0.1, 4).variances(2, 5) == [Variance(pytest.approx(0.01 / 2 + 0.01 / 5), 4)]


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
    pairs = combinations(values, 2)
    p_values = {pair: float(stats.ttest_rel(*(values[name] for name in pair)).pvalue) for pair in pairs}
    means = {name: float(own.mean()) for name, own in values.items()}
    assert found == holm_ranges(means, p_values)
    for name, ranks in found.items():
        rank = 1 + sum(mean > means[name] for mean in means.values())
        assert ranks.best <= rank <= ranks.worst, "the rank by the means is always allowed"


def test_equal_means_share_the_best_rank_of_theirs() -> None:
    assert competition_ranks({"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}) == {"a": 2, "b": 1, "c": 2, "d": 4}


def test_the_t_test_and_its_interval_are_scipys_paired_ones():
    base, own = noisy(0), noisy(1, shift=0.1)
    (row,) = compare({"a": table(base), "b": table(own)}, baseline="a", measure="RR@10")
    reference = stats.ttest_rel(own, base)
    interval = reference.confidence_interval(0.95)
    assert (row.p, row.low, row.high) == pytest.approx((reference.pvalue, interval.low, interval.high))
    difference = own - base
    assert row.difference == pytest.approx(difference.mean())
    assert row.effect == pytest.approx(difference.mean() / difference.std(ddof=1))
    assert (row.system, row.baseline, row.queries, row.seeds) == ("b", "a", 40, 1)
    assert (row.mean, row.baseline_mean) == pytest.approx((own.mean(), base.mean()))


def test_without_a_baseline_every_pair_is_tested_once_and_all_are_one_family():
    shifts = {"a": 0.0, "b": 0.02, "c": 0.3, "d": 0.31}
    values = {name: noisy(row, shift=shift) for row, (name, shift) in enumerate(shifts.items())}
    rows = compare({name: table(one) for name, one in values.items()}, measure="RR@10", correction="bonferroni")
    pairs = [("b", "a"), ("c", "a"), ("d", "a"), ("c", "b"), ("d", "b"), ("d", "c")]
    assert [(row.system, row.baseline) for row in rows] == pairs
    for row in rows:
        p = stats.ttest_rel(values[row.system], values[row.baseline]).pvalue
        assert row.p == pytest.approx(p) and row.p_corrected == pytest.approx(min(1.0, 6 * p))
    assert better_than(rows) == {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"]}


def test_who_is_worse_is_named_by_who_is_better_whichever_stands_first():
    systems = {"good": table(noisy(1, shift=0.4)), "bad": table(noisy(0)), "same": table(noisy(2, shift=0.4))}
    assert better_than(compare(systems, measure="RR@10")) == {"good": ["bad"], "bad": [], "same": ["bad"]}
    assert better_than(compare(systems, baseline="bad", measure="RR@10"))["good"] == ["bad"]
    assert better_than(compare(systems, baseline="good", measure="RR@10")) == {"bad": [], "good": ["bad"], "same": []}


def test_the_detectable_effect_must_pass_the_strictest_test_of_the_family():
    systems = {name: table(noisy(row)) for row, name in enumerate("abcd")}
    spread = (noisy(1) - noisy(0)).std(ddof=1)
    for correction, level in ((None, 0.05), ("bonferroni", 0.05 / 6), ("holm", 0.05 / 6)):
        row = compare(systems, measure="RR@10", correction=correction)[0]
        quantiles = stats.t.ppf(1 - level / 2, 39) + stats.t.ppf(0.8, 39)
        assert row.detectable == pytest.approx(quantiles * spread / math.sqrt(40))


def test_equal_systems_differ_by_nothing():
    (row,) = compare({"a": table(noisy(0)), "b": table(noisy(0))}, baseline="a", measure="RR@10")
    assert (row.p, row.difference, row.effect, row.low, row.high, row.detectable) == (1.0, 0, 0, 0, 0, 0)
    assert not row.significant


def test_a_single_query_decides_nothing():
    (row,) = compare({"a": table([0.1]), "b": table([0.9])}, baseline="a", measure="RR@10")
    assert row.p == 1.0 and not row.significant
    assert (row.low, row.high, row.detectable) == (-math.inf, math.inf, math.inf)
    (seeded,) = compare({"a": table([0.1]), "b": table([0.9])}, baseline="a", measure="RR@10", seeds=SeedSpread(0.1, 3))
    assert (seeded.p, seeded.low, seeded.detectable) == (1.0, -math.inf, math.inf)
    assert noise_floor([row]) is None


def test_without_repeats_the_spread_over_seeds_adds_nothing():
    systems = {name: table(noisy(row, shift=0.05 * row)) for row, name in enumerate("abc")}
    plain = compare(systems, baseline="a", measure="RR@10")
    for row, own in zip(compare(systems, baseline="a", measure="RR@10", seeds=SeedSpread(0.0, 0)), plain, strict=True):
        wanted = (own.p, own.p_corrected, own.low, own.high, own.detectable)
        assert (row.p, row.p_corrected, row.low, row.high, row.detectable) == pytest.approx(wanted)
    assert noise_floor(plain) == pytest.approx(np.mean([row.detectable for row in plain]))
    assert noise_floor([]) is None


def test_without_differences_between_queries_it_is_the_t_test_of_seeds():
    """Two systems of four seeds each, whose queries all move alike: Student's t-test of two samples."""
    seeds = {"best": [0.50, 0.52, 0.47, 0.51], "other": [0.44, 0.47, 0.49, 0.42]}
    tables = {name: [table([mean] * 30) for mean in means] for name, means in seeds.items()}
    (row,) = compare(tables, baseline="best", measure="RR@10", seeds=seed_spread(list(seeds.values())))
    reference = stats.ttest_ind(seeds["other"], seeds["best"])
    interval = reference.confidence_interval(0.95)
    assert (row.p, row.low, row.high) == pytest.approx((reference.pvalue, interval.low, interval.high))
    pooled = math.sqrt(sum(np.var(means, ddof=1) for means in seeds.values()) / 2)
    quantiles = stats.t.ppf(0.975, 6) + stats.t.ppf(0.8, 6)
    assert row.detectable == pytest.approx(quantiles * pooled * math.sqrt(2 / 4))


def test_different_queries_cannot_be_paired():
    with pytest.raises(
        UserError, match="b and a cannot be paired: 0 queries are only in the first, 1 only in the second"
    ):
        compare({"a": table([1, 2, 3]), "b": table([1, 2])}, baseline="a", measure="RR@10")
    shifted = {"a": table([1, 2, 3]), "b": table([1, 2, 3, 4, 5]).slice(1)}
    with pytest.raises(UserError, match="2 queries are only in the first, 1 only in the second"):
        compare(shifted, baseline="a", measure="RR@10")
    with pytest.raises(UserError, match="b, seed 2 and b, seed 1 cannot be paired"):
        compare({"a": table([1, 2]), "b": [table([1, 2]), table([1])]}, baseline="a", measure="RR@10")


def test_corrections_by_hand():
    p = [0.04, 0.01, 0.03, 0.5]
    assert correct(p, None) == p and correct([], "holm") == []
    assert correct(p, "bonferroni") == pytest.approx([0.16, 0.04, 0.12, 1.0])
    assert correct(p, "holm") == pytest.approx([0.09, 0.04, 0.09, 0.5])
    with pytest.raises(UserError, match="unknown correction 'sidak'"):
        correct(p, "sidak")  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_what_its_step_down_procedure_rejects(p, alpha):
    rejected = set()
    for step, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        if p[index] * (len(p) - step) >= alpha:
            break
        rejected.add(index)
    assert {index for index, value in enumerate(correct(p, "holm")) if value < alpha} == rejected
