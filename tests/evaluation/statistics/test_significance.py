import math

import numpy as np
import pytest
from scipy import stats

from midmask.errors import UserError
from midmask.evaluation.statistics.p_values import correct
from midmask.evaluation.statistics.seeds import SeedSpread, seed_spread
from midmask.evaluation.statistics.significance import better_than, compare, noise_floor
from tests.support.evaluation.per_query import drawn, table


def test_the_t_test_and_its_interval_are_scipys_paired_ones():
    base, own = drawn(0), drawn(1, shift=0.1)
    (row,) = compare({"a": table(base), "b": table(own)}, baseline="a", measure="RR@10")
    reference = stats.ttest_rel(own, base)
    interval = reference.confidence_interval(0.95)
    assert row.p == pytest.approx(reference.pvalue) and (row.low, row.high) == pytest.approx(
        (interval.low, interval.high)
    )
    difference = own - base
    assert row.difference == pytest.approx(difference.mean())
    assert row.effect == pytest.approx(difference.mean() / difference.std(ddof=1))
    assert (row.system, row.baseline, row.queries, row.seeds) == ("b", "a", 40, 1)
    assert (row.mean, row.baseline_mean) == pytest.approx((own.mean(), base.mean()))


def test_several_seeds_are_averaged_per_query_before_the_test():
    base, seeds = drawn(5), [drawn(6), drawn(7), drawn(8)]
    (row,) = compare({"a": table(base), "b": [table(run) for run in seeds]}, baseline="a", measure="RR@10")
    assert row.p == pytest.approx(stats.ttest_rel(np.mean(seeds, axis=0), base).pvalue)
    assert (row.seeds, row.queries) == (3, 40)


def test_the_family_is_all_systems_of_the_call():
    systems = {"a": table(drawn(0)), **{f"s{row}": table(drawn(row, shift=0.08)) for row in range(1, 4)}}
    plain, holm = (compare(systems, baseline="a", measure="RR@10", correction=kind) for kind in (None, "holm"))
    assert [row.p_corrected for row in holm] == pytest.approx(correct([row.p for row in plain], "holm"))
    assert [row.system for row in holm] == ["s1", "s2", "s3"]
    assert all(row.significant == (row.p_corrected < 0.05) for row in holm)


def test_without_a_baseline_every_pair_is_tested_once_and_all_are_one_family():
    shifts = {"a": 0.0, "b": 0.02, "c": 0.3, "d": 0.31}
    values = {name: drawn(row, shift=shift) for row, (name, shift) in enumerate(shifts.items())}
    rows = compare({name: table(one) for name, one in values.items()}, measure="RR@10", correction="bonferroni")
    pairs = [("b", "a"), ("c", "a"), ("d", "a"), ("c", "b"), ("d", "b"), ("d", "c")]
    assert [(row.system, row.baseline) for row in rows] == pairs
    for row in rows:
        p = stats.ttest_rel(values[row.system], values[row.baseline]).pvalue
        assert row.p == pytest.approx(p) and row.p_corrected == pytest.approx(min(1.0, 6 * p))
    assert better_than(rows) == {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"]}


def test_who_is_worse_is_named_by_who_is_better_whichever_stands_first():
    systems = {"good": table(drawn(1, shift=0.4)), "bad": table(drawn(0)), "same": table(drawn(2, shift=0.4))}
    assert better_than(compare(systems, measure="RR@10")) == {"good": ["bad"], "bad": [], "same": ["bad"]}
    assert better_than(compare(systems, baseline="bad", measure="RR@10"))["good"] == ["bad"]
    assert better_than(compare(systems, baseline="good", measure="RR@10")) == {"bad": [], "good": ["bad"], "same": []}


def test_a_difference_that_is_not_significant_beats_nobody():
    """Either may stand first, and either may be a little ahead."""
    base = drawn(0)
    noisy = base + drawn(9) - drawn(9).mean()
    for shift in (-0.001, 0.001):
        for order in (("x", "y"), ("y", "x")):
            values = {"x": table(base), "y": table(noisy + shift)}
            rows = compare({name: values[name] for name in order}, measure="RR@10", correction=None)
            assert rows[0].difference != 0 and better_than(rows) == {"x": [], "y": []}


def test_the_detectable_effect_must_pass_the_strictest_test_of_the_family():
    systems = {name: table(drawn(row)) for row, name in enumerate("abcd")}
    spread = (drawn(1) - drawn(0)).std(ddof=1)
    for correction, level in ((None, 0.05), ("bonferroni", 0.05 / 6), ("holm", 0.05 / 6), ("fdr_bh", 0.05 / 6)):
        row = compare(systems, measure="RR@10", correction=correction)[0]
        quantiles = stats.t.ppf(1 - level / 2, 39) + stats.t.ppf(0.8, 39)
        assert row.detectable == pytest.approx(quantiles * spread / math.sqrt(40))


def test_a_slice_is_compared_on_its_own_queries_alone():
    base, own = drawn(0), drawn(1, shift=0.1)
    head = [f"q{row}" for row in range(15)]
    (row,) = compare({"a": table(base), "b": [table(own)]}, baseline="a", measure="RR@10", queries=head)
    alone = compare({"a": table(base[:15]), "b": table(own[:15])}, baseline="a", measure="RR@10")
    assert row == alone[0] and row.queries == 15
    with pytest.raises(UserError, match="none of the slice's 1 queries"):
        compare({"a": table(base), "b": table(own)}, measure="RR@10", queries=["q40"])


def test_the_level_moves_the_verdict_and_the_interval_together():
    systems = {"a": table(drawn(0)), "b": table(drawn(1, shift=0.1))}
    p = compare(systems, measure="RR@10")[0].p
    for alpha, significant in ((p * 1.01, True), (p * 0.99, False)):
        row = compare(systems, measure="RR@10", correction_alpha=alpha)[0]
        assert row.significant is significant and (row.low > 0) is significant


def test_equal_systems_differ_by_nothing():
    (row,) = compare({"a": table(drawn(0)), "b": table(drawn(0))}, baseline="a", measure="RR@10")
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
    systems = {name: table(drawn(row, shift=0.05 * row)) for row, name in enumerate("abc")}
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


def test_the_spread_over_seeds_is_for_the_t_test_alone():
    systems = {"a": table(drawn(0)), "b": table(drawn(1))}
    with pytest.raises(ValueError, match="by the t-test alone, not by wilcoxon"):
        compare(systems, measure="RR@10", test="wilcoxon", seeds=SeedSpread(0.1, 3))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"baseline": "bm52"}, r"unknown baseline 'bm52'; did you mean 'bm25'\?"),
        ({"measure": "RR@1"}, r"unknown measure 'RR@1'; did you mean 'RR@10'\?"),
        ({"correction": "hulm"}, r"did you mean 'holm'\?"),
    ],
)
def test_unknown_names_are_one_line(options, complaint):
    arguments = {"baseline": "bm25", "measure": "RR@10", **options}
    with pytest.raises(UserError, match=complaint):
        compare({"bm25": table(drawn(0)), "b": table(drawn(1))}, **arguments)


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
