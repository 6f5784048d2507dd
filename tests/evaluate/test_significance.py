import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from midmask.errors import UserError
from midmask.evaluate.significance import compare, correct, minimum_detectable, paired_p


def table(values, measure: str = "RR@10") -> pa.Table:
    names = [f"q{row}" for row in range(len(values))]
    return pa.table(
        {"query_id": names, "measure": [measure] * len(values), "value": [float(value) for value in values]}
    )


def drawn(seed: int, count: int = 40, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 0.2, count)


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


def test_the_permutation_test_is_the_share_of_sign_patterns_that_are_as_far_from_0():
    difference = drawn(3, count=9, shift=0.1)
    means = [np.mean(difference * signs) for signs in itertools.product((1, -1), repeat=9)]
    expected = np.mean([abs(mean) >= abs(difference.mean()) - 1e-12 for mean in means])
    assert paired_p(difference, "permutation") == pytest.approx(expected)


def test_many_queries_are_permuted_at_random_but_the_same_way_each_time():
    difference = drawn(4, count=400, shift=0.02)
    p = paired_p(difference, "permutation", seed=1)
    assert p == paired_p(difference, "permutation", seed=1) != paired_p(difference, "permutation", seed=2)
    assert p == pytest.approx(stats.ttest_1samp(difference, 0).pvalue, abs=0.02)


@pytest.mark.parametrize("test", ["t", "permutation"])
def test_p_is_uniform_where_nothing_differs(test: str):
    """Under the null hypothesis 5% of 400 tests fall below 0.05: 20 +- 4.4, four sigma."""
    count = 400 if test == "t" else 100
    found = sum(paired_p(drawn(seed, count=8), test) < 0.05 for seed in range(1000, 1000 + count))
    assert abs(found - 0.05 * count) < 4 * math.sqrt(0.05 * 0.95 * count)


def test_several_seeds_are_averaged_per_query_before_the_test():
    base, seeds = drawn(5), [drawn(6), drawn(7), drawn(8)]
    (row,) = compare({"a": table(base), "b": [table(run) for run in seeds]}, baseline="a", measure="RR@10")
    assert row.p == pytest.approx(stats.ttest_rel(np.mean(seeds, axis=0), base).pvalue)
    assert (row.seeds, row.queries) == (3, 40)


def test_the_order_of_rows_does_not_matter():
    base, own = table(drawn(0)), table(drawn(1))
    shuffled = own.take(np.random.default_rng(0).permutation(40))
    assert compare({"a": base, "b": own}, baseline="a", measure="RR@10") == compare(
        {"a": base, "b": shuffled}, baseline="a", measure="RR@10"
    )


def test_corrections_by_hand():
    p = [0.04, 0.01, 0.03, 0.5]
    assert correct(p, None) == p
    assert correct(p, "bonferroni") == pytest.approx([0.16, 0.04, 0.12, 1.0])
    # Holm: 4 x 0.01, 3 x 0.03, then 2 x 0.04 = 0.08 is lifted to 0.09, then 0.5.
    assert correct(p, "holm") == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert correct([], "holm") == []


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_what_its_step_down_procedure_rejects(p, alpha):
    rejected = set()
    for step, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        if p[index] * (len(p) - step) >= alpha:
            break
        rejected.add(index)
    assert {index for index, value in enumerate(correct(p, "holm")) if value < alpha} == rejected


def test_the_family_is_all_systems_of_the_call():
    systems = {"a": table(drawn(0)), **{f"s{row}": table(drawn(row, shift=0.08)) for row in range(1, 4)}}
    plain, holm = (compare(systems, baseline="a", measure="RR@10", correction=kind) for kind in (None, "holm"))
    assert [row.p_corrected for row in holm] == pytest.approx(correct([row.p for row in plain], "holm"))
    assert [row.system for row in holm] == ["s1", "s2", "s3"]
    assert all(row.significant == (row.p_corrected < 0.05) for row in holm)


@pytest.mark.parametrize("count", [10, 50, 5000])
def test_the_minimum_detectable_effect_is_found_four_times_in_five(count: int):
    """The t-test's power by the noncentral t distribution, an approximation apart from the one in use."""
    effect = minimum_detectable(0.3, count) * math.sqrt(count) / 0.3
    limit = stats.t.ppf(0.975, count - 1)
    power = stats.nct.sf(limit, count - 1, effect) + stats.nct.cdf(-limit, count - 1, effect)
    assert power == pytest.approx(0.8, abs=0.02)


def test_equal_systems_differ_by_nothing():
    (row,) = compare({"a": table(drawn(0)), "b": table(drawn(0))}, baseline="a", measure="RR@10")
    assert (row.p, row.difference, row.effect, row.low, row.high, row.detectable) == (1.0, 0, 0, 0, 0, 0)
    assert not row.significant


def test_a_single_query_decides_nothing():
    (row,) = compare({"a": table([0.1]), "b": table([0.9])}, baseline="a", measure="RR@10")
    assert row.p == 1.0 and math.isinf(row.detectable) and not row.significant


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"baseline": "bm52"}, r"unknown baseline 'bm52'; did you mean 'bm25'\?"),
        ({"measure": "RR@1"}, r"unknown measure 'RR@1'; did you mean 'RR@10'\?"),
        ({"test": "z"}, "unknown test 'z'.*permutation, t"),
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
    with pytest.raises(UserError, match="b, seed 2 and b, seed 1 cannot be paired"):
        compare({"a": table([1, 2]), "b": [table([1, 2]), table([1])]}, baseline="a", measure="RR@10")
