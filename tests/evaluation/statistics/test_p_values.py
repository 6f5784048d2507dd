import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from midmask.evaluation.statistics.p_values import correct, paired_p, strictest_level


def drawn(seed: int, count: int = 40, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 0.2, count)


def test_the_permutation_test_is_the_share_of_sign_patterns_that_are_as_far_from_0():
    difference = drawn(3, count=9, shift=0.1)
    means = [np.mean(difference * signs) for signs in itertools.product((1, -1), repeat=9)]
    expected = np.mean([abs(mean) >= abs(difference.mean()) - 1e-12 for mean in means])
    assert paired_p(difference, "permutation") == pytest.approx(expected)
    among_equal = np.concatenate([np.zeros(50), difference, np.zeros(50)])
    assert paired_p(among_equal, "permutation") == pytest.approx(expected), (
        "queries without a difference decide nothing"
    )


@pytest.mark.parametrize("test", ["wilcoxon", "permutation"])
def test_one_query_that_differs_has_either_sign_as_often(test: str):
    assert paired_p(np.array([0.0, 0.5, 0.0]), test) == 1.0


def test_many_queries_are_permuted_at_random_but_the_same_way_each_time():
    difference = drawn(4, count=400, shift=0.02)
    p = paired_p(difference, "permutation", seed=1)
    assert p == paired_p(difference, "permutation", seed=1) != paired_p(difference, "permutation", seed=2)
    assert p == pytest.approx(stats.ttest_1samp(difference, 0).pvalue, abs=0.02)


def test_the_signed_rank_test_is_the_share_of_sign_patterns_of_the_ranks():
    """Exact for few queries: the ranks 1, …, 9 of |difference|, each with either sign."""
    difference = drawn(3, count=9, shift=0.1)
    rank = np.argsort(np.argsort(np.abs(difference))) + 1
    sums = [abs(np.sum(rank * signs)) for signs in itertools.product((1, -1), repeat=9)]
    expected = np.mean([value >= abs(np.sum(rank * np.sign(difference))) for value in sums])
    assert paired_p(difference, "wilcoxon") == pytest.approx(expected)


def test_the_signed_rank_test_leaves_equal_queries_out():
    difference = drawn(5, count=12, shift=0.1)
    padded = np.concatenate([difference, np.zeros(7)])
    assert paired_p(padded, "wilcoxon") == pytest.approx(
        stats.wilcoxon(difference, method="asymptotic").pvalue, abs=1e-12
    )


@pytest.mark.parametrize("test", ["t", "wilcoxon", "permutation"])
def test_p_is_uniform_where_nothing_differs(test: str):
    """Under the null hypothesis 5% of 400 tests fall below 0.05: 20 +- 4.4, four sigma."""
    count = 100 if test == "permutation" else 400
    found = sum(paired_p(drawn(seed, count=8), test) < 0.05 for seed in range(1000, 1000 + count))
    assert abs(found - 0.05 * count) < 4 * math.sqrt(0.05 * 0.95 * count)


def test_corrections_by_hand():
    p = [0.04, 0.01, 0.03, 0.5]
    assert correct(p, None) == p
    assert correct(p, "bonferroni") == pytest.approx([0.16, 0.04, 0.12, 1.0])
    # Holm: 4 x 0.01, 3 x 0.03, then 2 x 0.04 = 0.08 is lifted to 0.09, then 0.5.
    assert correct(p, "holm") == pytest.approx([0.09, 0.04, 0.09, 0.5])
    # Holm-Šidák: 1 - 0.99^4, 1 - 0.97^3, then 1 - 0.96^2 is lifted, then 0.5.
    expected = [1 - 0.97**3, 1 - 0.99**4, 1 - 0.97**3, 0.5]
    assert correct(p, "holm-sidak") == pytest.approx(expected) == correct(p, "hs")
    # Benjamini-Hochberg: 4/1 x 0.01, 4/2 x 0.03 = 0.06 is lowered to 4/3 x 0.04, then 4/4 x 0.5.
    assert correct(p, "fdr_bh") == pytest.approx([0.16 / 3, 0.04, 0.16 / 3, 0.5])
    assert correct([], "holm") == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_what_its_step_down_procedure_rejects(p, alpha):
    rejected = set()
    for step, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        if p[index] * (len(p) - step) >= alpha:
            break
        rejected.add(index)
    assert {index for index, value in enumerate(correct(p, "holm")) if value < alpha} == rejected


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_benjamini_hochberg_rejects_what_its_step_up_procedure_rejects(p, alpha):
    """All p up to the largest i-th smallest that is below alpha x i / m."""
    within = [value for place, value in enumerate(sorted(p), start=1) if value * len(p) / place < alpha]
    rejected = {index for index, value in enumerate(p) if within and value <= max(within)}
    assert {index for index, value in enumerate(correct(p, "fdr_bh")) if value < alpha} == rejected


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_corrections_are_ordered_by_strictness_and_never_leave_0_to_1(p):
    kinds = ("bonferroni", "holm", "holm-sidak", "fdr_bh", None)
    found = np.array([correct(p, kind) for kind in kinds])
    assert (found[[0, 1, 1, 2, 3]] >= found[[1, 2, 3, 4, 4]] - 1e-12).all()
    assert (found >= 0).all() and (found <= 1).all()


@pytest.mark.parametrize("kind", ["bonferroni", "holm", "holm-sidak", "hs", "fdr_bh", None])
def test_a_p_just_below_the_strictest_level_is_significant_in_any_company(kind):
    level = strictest_level(0.05, 7, kind)
    below, above = (correct([level * share, *[1.0] * 6], kind)[0] for share in (1 - 1e-9, 1 + 1e-9))
    assert below < 0.05 < above
    assert strictest_level(0.05, 1, kind) == 0.05
