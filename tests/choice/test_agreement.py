"""Intervals of gains against scipy and by hand, fits of simulated collections, coverage of stated intervals."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from midmask.choice.agreement import (
    PRIOR,
    Fit,
    fit_calibration,
    fit_kinds,
    kendall_tau,
    regret,
    sum_interval,
    with_prior,
)
from midmask.choice.calibration_records import GainRecord
from midmask.choice.held_out import leave_one_out
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance

LEVEL = 0.9


def interval_of(fit: Fit, gain: float, sampling: Variance, level: float, *, noise: float = 0.0) -> IntervalEstimate:
    return sum_interval([(fit, gain, sampling)], level, noise=noise)


def gain_interval(differences, level, *, between=0.0, bias=0.0, shrink=1.0, shrink_error=0.0, freedom=1e9):
    fit, values = Fit(shrink, between, freedom, shrink_error, bias), np.asarray(differences, dtype=np.float64)
    return interval_of(fit, float(values.mean()), Variance.of_mean(values), level)


def simulated(
    generator: np.random.Generator,
    *,
    collections: int,
    systems: int,
    shrink: float = 0.7,
    between: float = 0.0,
    shared: float = 0.0,
    error: float = 0.006,
    judged_error: float = 0.01,
) -> tuple[list[GainRecord], np.ndarray]:
    """Records that the model makes, and the real gains behind them. shared: intra-class correlation of the scatter."""
    names = np.repeat(np.arange(collections), systems)
    made = generator.normal(0.02, 0.02, len(names))
    common, own = generator.normal(size=collections)[names], generator.normal(size=len(names))
    real = shrink * made + between * (math.sqrt(shared) * common + math.sqrt(1 - shared) * own)
    seen, judged = (
        made + error * generator.normal(size=len(names)),
        real + judged_error * generator.normal(size=len(names)),
    )
    records = [
        GainRecord(f"c{name}", "all", f"s{number}", float(m), error, float(j), judged_error)
        for number, (name, m, j) in enumerate(zip(names, seen, judged, strict=True))
    ]
    return records, real


def test_without_a_model_it_is_the_paired_t_interval():
    first, second = np.random.default_rng(1).uniform(size=(2, 35))
    found, reference = gain_interval(first - second, LEVEL), stats.ttest_rel(first, second).confidence_interval(LEVEL)
    assert found.value == pytest.approx(float(np.mean(first - second)))
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))


def test_it_shrinks_moves_and_widens_by_hand():
    differences = [0.1, 0.3, 0.2, 0.4]
    square = np.var(differences, ddof=1) / 4
    found = gain_interval(differences, 0.95, between=0.03, bias=0.01, shrink=0.5)
    variance = 0.25 * square + 0.03**2
    freedom = variance**2 / ((0.25 * square) ** 2 / 3 + 0.03**4 / 1e9)
    margin = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    assert (found.low, found.value, found.high) == pytest.approx((0.115 - margin, 0.115, 0.115 + margin))


def test_an_uncertain_shrink_widens_large_gains_more():
    few = [0.2, 0.25, 0.15, 0.2]
    plain, unsure = gain_interval(few, LEVEL), gain_interval(few, LEVEL, shrink_error=0.1)
    square = np.var(few, ddof=1) / 4
    variance = square + 0.2**2 * 0.1**2
    freedom = variance**2 / (square**2 / 3 + (0.2 * 0.1) ** 4 / 1)
    assert plain.value == unsure.value
    assert unsure.high - unsure.value == pytest.approx(stats.t.ppf(0.95, freedom) * math.sqrt(variance))


def test_a_single_query_shows_no_spread():
    found = gain_interval([0.4], LEVEL)
    assert (found.low, found.high) == (-math.inf, math.inf)
    nothing = gain_interval([0.4], LEVEL, shrink=0.0)
    assert (nothing.low, nothing.high) == (0.0, 0.0), "nothing of a gain remains, so its spread does not matter"


def test_tau_is_the_share_of_agreeing_pairs():
    a, b = [3.0, 1.0, 2.0, 5.0, 4.0], [1.0, 2.0, 3.0, 5.0, 4.0]
    agree = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in combinations(range(5), 2)]
    assert kendall_tau(a, b) == pytest.approx(sum(agree) / len(agree))
    tied = kendall_tau([1, 1, 2], [1, 2, 3])
    assert tied == pytest.approx(2 / math.sqrt(2 * 3)), "tau-b: two agreeing pairs, one tie in the first"
    assert kendall_tau([0.5, 0.5], [0.1, 0.2]) is None and kendall_tau([0.5], [0.1]) is None


def test_regret_is_what_the_first_choice_lacks():
    assert regret([0.1, 0.4, 0.3], [0.30, 0.25, 0.28]) == pytest.approx(0.05)
    assert regret([0.1, 0.4, 0.3], [0.1, 0.4, 0.4]) == 0
    assert regret([0.4, 0.4], [0.1, 0.2]) == pytest.approx(0.1), "of equal estimates the first is taken"
    for wrong in (([0.1], [0.1, 0.2]), ([], [])):
        with pytest.raises(ValueError, match="one for each system"):
            regret(*wrong)


def test_many_collections_give_the_parameters_back():
    generator = np.random.default_rng(3)
    records, _ = simulated(generator, collections=60, systems=10, shrink=0.6, between=0.012, error=0.015)
    fit = fit_calibration(records)
    assert fit.shrink == pytest.approx(0.6, abs=0.06) and fit.shrink_error < 0.05
    assert fit.between == pytest.approx(0.012, abs=0.002)
    assert (len(fit.collections), fit.gains) == (60, 600)
    assert 400 < fit.freedom < 600
    made, judged = (np.array([getattr(one, name) for one in records]) for name in ("made", "judged"))
    assert made @ judged / (made @ made) < 0.5, "without the correction, the made gains' errors flatten the line"


def test_gains_that_lie_on_a_line_have_no_scatter():
    records = [GainRecord(f"c{i % 3}", "all", f"s{i}", 0.01 * i, 0.0, 0.005 * i, 0.0) for i in range(1, 10)]
    fit = fit_calibration(records)
    assert fit.shrink == pytest.approx(0.5) and fit.shrink_error < 1e-9 and fit.between < 1e-9
    found = interval_of(fit, 0.1, Variance(0.0, 10), LEVEL)
    assert (found.low, found.value, found.high) == pytest.approx((0.05, 0.05, 0.05))


def test_what_errors_explain_leaves_little_scatter_but_never_none():
    generator = np.random.default_rng(4)
    fits = [fit_calibration(simulated(generator, collections=3, systems=8)[0]) for _ in range(40)]
    assert all(fit.between > 0 for fit in fits), "none says that nothing scatters, though none does"
    assert np.median([fit.between for fit in fits]) < 0.01, "the errors of a judged gain alone"


def test_systems_that_err_together_count_as_few():
    generator = np.random.default_rng(5)
    together, apart = (
        fit_calibration(simulated(generator, collections=4, systems=10, between=0.03, shared=shared)[0])
        for shared in (1.0, 0.0)
    )
    assert together.freedom < 8 < 25 < apart.freedom <= 39


def test_fits_at_their_limits():
    """Opposite gains leave a shrink of nothing; nothing made, and too few collections, leave the prior."""
    opposite = [GainRecord(f"c{i % 3}", "all", f"s{i}", 0.01 * i, 0.001, -0.01 * i, 0.001) for i in range(1, 10)]
    assert fit_calibration(opposite).shrink == 0
    for collections in (0, 1):
        records, _ = simulated(np.random.default_rng(0), collections=collections, systems=5)
        assert fit_calibration(records) == PRIOR and not PRIOR.collections
    assert interval_of(PRIOR, 0.03, Variance(0.0, 100), LEVEL).low == pytest.approx(0.03 - 0.02 * stats.t.ppf(0.95, 4))
    assert fit_calibration([GainRecord(f"c{i}", "all", "s", 0.0, 0.01, 0.01, 0.01) for i in range(3)]) == PRIOR


COVERED = {
    "the model holds": (200, {"collections": 4, "systems": 10, "between": 0.015}, (0.85, 0.95)),
    "few systems, little scatter": (400, {"collections": 7, "systems": 4, "between": 0.005}, (0.85, 0.95)),
    "two collections": (200, {"collections": 3, "systems": 8, "between": 0.015}, (0.8, 0.95)),
    "shared errors": (200, {"collections": 4, "systems": 8, "between": 0.015, "shared": 1.0}, (0.8, 0.95)),
}
"""Number of draws, how they are made, and between which shares 90% intervals should cover."""


@pytest.mark.parametrize("case", COVERED)
def test_intervals_cover_real_gains_of_a_new_collection_as_stated_or_little_less(case: str):
    draws, made, (least, most) = COVERED[case]
    generator, systems = np.random.default_rng(6), made["systems"]
    covered, noisy = [], []
    for _ in range(draws):
        records, real = simulated(generator, **made)
        fit = fit_calibration(records[:-systems])
        for one, truth in list(zip(records, real, strict=True))[-systems:]:
            sampling = Variance(one.made_error**2, 1e9)
            stated = interval_of(fit, one.made, sampling, LEVEL)
            covered.append(stated.low <= truth <= stated.high)
            widened = interval_of(fit, one.made, sampling, LEVEL, noise=one.judged_error**2)
            noisy.append(widened.low <= one.judged <= widened.high)
    assert least <= np.mean(covered) <= most and least <= np.mean(noisy) <= most


def test_a_few_collections_count_beside_the_prior_and_many_outweigh_it():
    """The scatter's posterior against a grid over the variance: prior and likelihood multiplied out in float64."""
    prior, seen = Fit(1.0, 0.03, freedom=4), Fit(0.7, 0.005, freedom=20, collections=("a", "b", "c"))
    found = with_prior(seen, prior)
    grid = np.geomspace(1e-7, 1.0, 400_001)
    log_prior = stats.invgamma.logpdf(grid, a=2, scale=2 * 0.03**2)  # 4 degrees of freedom around 0.03\u00b2
    log_likelihood = stats.gamma.logpdf(2 * 0.005**2, a=1, scale=2 * grid)  # 2 squares that sum to 2 * 0.005\u00b2
    density = np.exp(log_prior + log_likelihood - (log_prior + log_likelihood).max())
    whole = np.trapezoid(density, grid)
    mean_precision = np.trapezoid(density / grid, grid) / whole
    assert 1 / found.between**2 == pytest.approx(mean_precision, rel=1e-3), "the mean of 1 / between\u00b2"
    assert (found.freedom, found.shrink, found.collections) == (6, 0.7, seen.collections)
    many = Fit(0.7, 0.005, freedom=2000, collections=tuple(f"c{n}" for n in range(200)))
    assert with_prior(many, prior).between == pytest.approx(0.005, rel=0.4)


def test_each_collection_is_judged_by_a_fit_on_the_others():
    records, _ = simulated(np.random.default_rng(7), collections=4, systems=6, between=0.01)
    found = leave_one_out(records, LEVEL)
    assert [one.collection for one in found] == ["c0", "c1", "c2", "c3"]
    for one in found:
        own = [record for record in records if record.collection == one.collection]
        others = fit_calibration([record for record in records if record.collection != one.collection])
        fit = with_prior(others, PRIOR)
        assert one.fits == {"all": fit} and one.collection not in fit.collections and one.systems == len(own) == 6
        ends = [interval_of(fit, record.made, Variance(record.made_error**2, 1e9), LEVEL) for record in own]
        inside = [end.low <= record.judged <= end.high for end, record in zip(ends, own, strict=True)]
        assert one.covered == sum(inside) <= one.covered_with_noise <= 6
        made, judged = [0.0, *(record.made for record in own)], [0.0, *(record.judged for record in own)]
        assert one.kendall_tau == pytest.approx(stats.kendalltau(made, judged).statistic)
        assert one.regret == pytest.approx(max(judged) - judged[int(np.argmax(made))])


def test_a_system_that_is_worse_than_the_baseline_is_not_chosen():
    own = [GainRecord("a", "all", "s", -0.02, 0.001, 0.03, 0.001)]
    assert leave_one_out(own, LEVEL)[0].regret == pytest.approx(0.03), "the baseline is chosen, whose gain is 0"


def test_where_made_gains_tell_nothing_the_mean_over_collections_is_expected() -> None:
    """Collections weigh alike however many verdicts they have; the prior's mean, 0.04, is one more of them."""
    prior = Fit(shrink=0.0, between=0.06, freedom=4, bias=-0.04)
    judged = {"a": [0.03, 0.03, 0.03], "b": [0.13], "c": [0.06, 0.08]}
    records = [
        GainRecord(name, "all", "s", made, 0.01, value, 0.01, seed=seed)
        for made, (name, values) in zip((0.3, -0.2, 0.0), judged.items(), strict=True)
        for seed, value in enumerate(values)
    ]
    fit = fit_kinds(records, lambda _: "join", {"join": prior})["join"]
    means = [0.03, 0.13, 0.07]
    assert [fit.expected(gain) for gain in (-1.0, 0.0, 1.0)] == pytest.approx([(0.04 + sum(means)) / 4] * 3)
    pooled = (4 * 0.06**2 + 2 * np.var(means, ddof=1)) / 6
    assert fit.between == pytest.approx((pooled * 1.25) ** 0.5) and fit.freedom == 6
    found = sum_interval([(fit, 0.5, Variance(1.0, 10))], 0.9)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.95, 6) * fit.between), "nor does their error"
    assert fit_kinds([], lambda _: "join", {"join": prior})["join"] == prior
    one = fit_kinds(records[:3], lambda _: "join", {"join": prior})["join"]
    assert one.expected(0) == pytest.approx(0.035) and one.freedom == 4
