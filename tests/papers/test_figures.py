"""The spread between systems, against the truth."""

import pytest

from midmask.benchmark.results import Results, SystemKey
from midmask_papers.figures import spreads
from tests.support.benchmark.synthetic import Noise, dense, drawn, results

QUIET = Noise().scaled(1e-6)
FINE_TUNINGS = ("sigir23_32neg_distil", "sigir23_1neg", "sigir23_32neg")
MEANS = {"none": (0.50, 0.30, 0.40), "mlm": (0.51, 0.34, 0.43), "retromae": (0.53, 0.40, 0.46)}


def by_setting(split: str = "test") -> Results:
    truth = {
        dense(system, setting=setting): value
        for system, values in MEANS.items()
        for setting, value in zip(FINE_TUNINGS, values, strict=True)
    }
    alone = {dense("lexmae", setting="sigir23_1neg"): 0.9, SystemKey("mlm", "corpus", "splade", "sigir23_1neg"): 0.1}
    return results(
        drawn({**truth, **alone}, noise=QUIET, corpus="squad", split=split),
        drawn({key: 0.9 - value for key, value in truth.items()}, noise=QUIET, corpus="cranfield", split="test"),
    )


def test_numbers_are_of_systems_in_every_setting_weakest_fine_tuning_first():
    rows = spreads(by_setting())
    assert [(one.representation, one.setting) for one in rows] == [
        ("dense", "sigir23_1neg"),
        ("dense", "sigir23_32neg"),
        ("dense", "sigir23_32neg_distil"),
    ]
    assert [one.width for one in rows] == pytest.approx([0.10, 0.06, 0.03], abs=1e-5)
    assert set(rows[0].means) == {"none (none)", "mlm (corpus)", "retromae (corpus)"}
    assert [max(one.printed) - min(one.printed) for one in rows] == pytest.approx([0.040, 0.020, 0.018])
