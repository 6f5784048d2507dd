"""Gains over a system whose own gain is another record add up to the gain over the baseline."""

from dataclasses import replace

import pytest
from scipy import stats

from midmask.choice.agreement import Fit
from midmask.choice.calibration_records import GainRecord
from midmask.choice.held_out import leave_one_out

JOINED = "as it is \u00b7 dense with BM25"
PRIORS = {
    "with BM25": Fit(shrink=0.5, between=0.03, freedom=1e9),
    "trained": Fit(shrink=1.0, between=0.01, freedom=1e9),
}


def records(trained: float, joined: float) -> list[GainRecord]:
    """Of one collection, so that the priors are what predicts it."""
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
    """Expected over the baseline: 0.1, 0.12 and 0.03."""
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
