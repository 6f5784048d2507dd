"""Intervals of gains against scipy and by hand; each collection by a fit on the others; agreement by source."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.benchmark.results import Result, SystemKey
from midmask.choice.assess import Counterparts
from midmask.choice.calibration import (
    PRIOR,
    Fit,
    GainRecord,
    fit_calibration,
    fit_kinds,
    leave_one_out,
    sum_interval,
    with_prior,
)
from midmask.choice.reveal import DecidedPairs, agreement_by_source, decided_pairs
from midmask.evaluation.statistics.intervals import IntervalEstimate, Variance

LEVEL = 0.9


def interval_of(fit: Fit, gain: float, sampling: Variance, level: float, *, noise: float = 0.0) -> IntervalEstimate:
    return sum_interval([(fit, gain, sampling)], level, noise=noise)


def gain_interval(differences, level, *, between=0.0, bias=0.0, shrink=1.0, shrink_error=0.0, freedom=1e9):
    fit, values = Fit(shrink, between, freedom, shrink_error, bias), np.asarray(differences, dtype=np.float64)
    return interval_of(fit, float(values.mean()), Variance.of_mean(values), level)


def simulated(generator, *, collections, systems, shrink=0.7, between=0.0, shared=0.0, error=0.006, judged_error=0.01):
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


JOINED = "as it is \u00b7 dense with BM25"
PRIORS = {
    "with BM25": Fit(shrink=0.5, between=0.03, freedom=1e9),
    "trained": Fit(shrink=1.0, between=0.01, freedom=1e9),
}


def records(trained: float, joined: float) -> list[GainRecord]:
    return [
        GainRecord("a", "titles", JOINED, 0.2, 0.0, joined, 0.004),
        GainRecord("a", "titles", "mlm \u00b7 dense with BM25", 0.02, 0.0, trained, 0.003, over=JOINED),
        GainRecord("a", "titles", "mlm \u00b7 dense", 0.03, 0.0, 0.025, 0.003),
    ]


def kind_of(record: GainRecord) -> str:
    return "with BM25" if record.system == JOINED else "trained"


def held(trained: float, joined: float) -> tuple[float | None, float, int, int]:
    (found,) = leave_one_out(records(trained, joined), 0.9, kind_of, PRIORS)
    assert found.systems == 3
    return found.kendall_tau, found.regret, found.covered, found.covered_with_noise


def test_ranks_and_regret_are_of_the_sums() -> None:
    tau, regret, covered, _ = held(trained=0.01, joined=0.09)
    assert (tau, covered) == (1.0, 3) and regret == 0.0
    tau, regret, _, _ = held(trained=-0.05, joined=0.09)
    judged = [0.0, 0.09, 0.04, 0.025]
    assert tau == pytest.approx(stats.kendalltau([0.0, 0.1, 0.12, 0.03], judged).statistic)
    assert regret == pytest.approx(0.09 - 0.04)


def test_intervals_are_of_the_sums() -> None:
    """0.12 with variance 0.03\u00b2 + 0.01\u00b2; with noise also 0.004\u00b2 + 0.003\u00b2."""
    margin, noisy = (stats.norm.ppf(0.95) * spread**0.5 for spread in (0.001, 0.001025))
    for excess, inside, with_noise in ((-1e-4, 3, 3), ((noisy - margin) / 2, 2, 3), (noisy - margin + 1e-4, 2, 2)):
        found = held(trained=0.12 + margin + excess - 0.11, joined=0.11)
        assert found[2:] == (inside, with_noise)


def test_seeds_of_a_collection_are_held_out_together_and_reported_apart() -> None:
    """Each with its own joined system; were they one verdict, the sums of the first would be over the second's."""
    first, second = records(0.01, 0.09), [replace(one, seed=1) for one in records(0.01, -0.2)]
    apart = [leave_one_out(own, 0.9, kind_of, PRIORS)[0] for own in (first, second)]
    together = leave_one_out([*first, *second], 0.9, kind_of, PRIORS)
    assert [one.seed for one in together] == [0, 1]
    assert together == apart and apart[0].covered > apart[1].covered


QUERIES = {"t1": "titles", "t2": "titles", "k1": "keyphrases", "k2": "keyphrases", "k3": "keyphrases", "d1": "titles"}
JUDGED = {("a", "dense"): 0.4, ("b", "dense"): 0.5, ("c", "dense"): 0.3, ("base", "dense"): 0.35}


def result(name: str, values: dict[str, float], split: str = "test") -> Result:
    table = pa.table({"query_id": list(values), "measure": ["nDCG@10"] * len(values), "value": list(values.values())})
    key = SystemKey(name, "none", "dense", "")
    return Result(key, 0, "made", split, {"nDCG@10": sum(values.values()) / len(values)}, table)


BASE = {"t1": 0.5, "t2": 0.2, "k1": 0.1, "k2": 0.3, "k3": 0.6}
MADE = {
    ("a", "dense"): result("a", {"t1": 0.6, "t2": 0.3, "k1": 0.9, "k2": 0.9, "k3": 0.9}),
    ("b", "dense"): result("b", {"t1": 0.8, "t2": 0.4, "k1": 0.1, "k2": 0.2, "k3": 0.6}),
    ("c", "dense"): result("c", {"d1": 0.1}, "dev"),
    ("base", "dense"): result("base", BASE),
}
COUNTERPARTS = Counterparts({"test": MADE["base", "dense"], "dev": result("base", {"d1": 0.4}, "dev")})


def test_each_source_ranks_by_its_own_queries_and_against_its_own_split() -> None:
    (titles,) = agreement_by_source(QUERIES, MADE, COUNTERPARTS, JUDGED)
    gains = [(0.1 + 0.1) / 2, (0.3 + 0.2) / 2, 0.1 - 0.4, 0.0]
    assert titles.source == "titles" and titles.queries == 1, "no keyphrase among c's queries, so none is compared"
    assert titles.kendall_tau == pytest.approx(stats.kendalltau(gains, list(JUDGED.values())).statistic)
    assert (titles.chosen, titles.regret) == ("b · dense", 0.0)

    two = {name: value for name, value in JUDGED.items() if name[0] != "c"}
    keyphrases, titles = agreement_by_source(QUERIES, MADE, COUNTERPARTS, two)
    assert (keyphrases.queries, keyphrases.chosen) == (3, "a · dense")
    assert keyphrases.regret == pytest.approx(0.1) and titles.queries == 2


RANKED = [(name, "dense") for name in "abcdef"]


def test_pairs_are_those_of_a_paired_test_and_ties_of_a_verdict_are_not_alike() -> None:
    draw = np.random.default_rng(5)
    common = draw.normal(0.5, 0.2, 40)
    values = {name: common + draw.normal(0.02 * at, 0.08, 40) for at, name in enumerate(RANKED)}
    gains = {name: value for name, value in zip(RANKED, (0.0, 0.1, 0.1, -0.2, 0.3, 0.2), strict=True)}
    wanted = [0, 0]
    for one, other in combinations(RANKED, 2):
        found = stats.ttest_rel(values[one], values[other])
        if found.pvalue < 0.05:
            wanted[0] += 1
            wanted[1] += (gains[one] - gains[other]) * found.statistic > 0
    queries = [f"q{number}" for number in range(40)]
    judged = {name: result(name[0], dict(zip(queries, own.tolist(), strict=True))) for name, own in values.items()}
    assert decided_pairs(gains, judged) == DecidedPairs(*wanted)
    assert 0 < wanted[1] < wanted[0] < 15
    assert str(DecidedPairs(9, 7)) == "7 of 9 pairs that people's queries tell apart are ranked alike"
    equal = dict.fromkeys(RANKED, 0.1)
    assert decided_pairs(equal, judged) == DecidedPairs(wanted[0], 0)
