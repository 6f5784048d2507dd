"""A kind of gain that made queries do not tell: what other collections gained is expected."""

import numpy as np
import pytest
from scipy import stats

from midmask.choice.agreement import Fit, fit_kinds, sum_interval
from midmask.choice.calibration_records import GainRecord
from midmask.evaluation.statistics.intervals import Variance


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
