"""The noise floor: each of its two parts alone is a test that scipy has; both together, as simulated."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from midmask.cluster.noise import SeedSpread, detectable, noise_floor, seed_spread, standard_error, standings
from midmask.evaluate.inference import correct, minimum_detectable

NONE = SeedSpread(0.0, 0)


def table(values, order=None) -> pa.Table:
    rows = order if order is not None else range(len(values))
    ids = [f"q{row}" for row in rows]
    return pa.table({"query_id": ids, "measure": ["RR@10"] * len(ids), "value": [float(values[row]) for row in rows]})


def test_without_repeats_it_is_the_paired_t_test_over_queries_with_holm():
    rng = np.random.default_rng(0)
    values = {name: rng.random(60) + shift for name, shift in (("best", 0.3), ("near", 0.25), ("far", 0.0))}
    tables = {name: table(own, order=rng.permutation(60)) for name, own in values.items()}  # ids pair them, not order
    found = standings(tables, "best", "RR@10", NONE)
    p = [stats.ttest_rel(values[name], values["best"]).pvalue for name in ("near", "far")]
    assert [found[name].p for name in ("near", "far")] == pytest.approx(p)
    assert [found[name].p_corrected for name in ("near", "far")] == pytest.approx(correct(p, "holm"))
    for name, own in found.items():
        difference = values[name] - values["best"]
        assert own.difference == pytest.approx(difference.mean())
        assert own.detectable == pytest.approx(minimum_detectable(difference.std(ddof=1), 60, alpha=0.05 / 2))
        assert own.is_distinguishable == (own.p_corrected < 0.05)
    assert noise_floor(found) == pytest.approx(np.mean([own.detectable for own in found.values()]))


def test_without_differences_between_queries_it_is_the_t_test_of_seeds():
    """Two systems of four seeds each, whose queries all move alike: Student's t-test of two samples."""
    seeds = {"best": [0.50, 0.52, 0.47, 0.51], "other": [0.44, 0.47, 0.49, 0.42]}
    tables = {name: [table([mean] * 30) for mean in means] for name, means in seeds.items()}
    spread = seed_spread(list(seeds.values()))
    found = standings(tables, "best", "RR@10", spread)["other"]
    assert found.p == pytest.approx(stats.ttest_ind(*seeds.values()).pvalue)
    assert spread.degrees == 6
    pooled = math.sqrt(sum(np.var(means, ddof=1) for means in seeds.values()) / 2)
    assert spread.spread == pytest.approx(pooled)
    quantiles = stats.t.ppf(0.975, 6) + stats.t.ppf(0.8, 6)
    assert found.detectable == pytest.approx(quantiles * pooled * math.sqrt(2 / 4))


def test_pooling_leaves_single_runs_out():
    assert seed_spread([[0.5], [0.7]]) == NONE
    assert seed_spread([[0.5], [0.1, 0.3], [0.6, 0.6]]) == SeedSpread(pytest.approx(0.1), 2)


def test_both_parts_keep_the_level_and_find_what_they_say_they_find():
    """2,000 sweeps of two trials, one seed each, with a true difference of nothing, and of the detectable difference;
    the seeds' spread is estimated from six other runs.
    """
    rng, queries, query_sd, seed_sd = np.random.default_rng(1), 100, 0.3, 0.02
    truth = math.sqrt(query_sd**2 / queries + 2 * seed_sd**2)
    rejected = {"nothing": 0, "detectable": 0}
    for _ in range(2000):
        spread = seed_spread([rng.normal(0, seed_sd, 3) for _ in range(3)])
        shift = rng.normal(0, seed_sd, 2)
        noise = rng.normal(0, query_sd, queries) + shift[0] - shift[1]
        for name, true in (("nothing", 0.0), ("detectable", (1.96 + 0.84) * truth)):
            error, degrees = standard_error(noise + true, spread, repeats=1)
            p = 2 * stats.t.sf(abs((noise + true).mean()) / error, degrees)
            rejected[name] += p < 0.05
    assert 0.02 <= rejected["nothing"] / 2000 <= 0.07
    assert 0.72 <= rejected["detectable"] / 2000 <= 0.86


def test_what_is_detectable_would_be_found_and_a_sweep_of_one_has_no_floor():
    assert detectable(0.1, 1e9, 0.05) == pytest.approx(0.1 * (1.959964 + 0.841621), rel=1e-5)
    assert noise_floor(standings({"best": table([0.5, 0.6])}, "best", "RR@10", NONE)) is None
    same = standings({"best": table([0.5, 0.6]), "twin": table([0.5, 0.6])}, "best", "RR@10", NONE)["twin"]
    assert (same.p, same.difference, same.detectable) == (1.0, 0.0, 0.0)
