"""What people's queries are expected to say: by hand, against scipy, and of each collection from the others."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from midmask.choice.calibration import (
    JOIN,
    LEVEL,
    LEXICAL_GAIN,
    TRAINED,
    WORDS,
    GainRecord,
    Kind,
    LevelRecord,
    Offset,
    Prediction,
    gain_offsets,
    kind_of,
    leave_one_out,
    level_interval,
    load_levels,
    load_records,
    sum_interval,
)
from midmask.choice.contenders import AS_IS, LEXICAL, TUNED, UNTRAINED, System
from midmask.errors import UserError
from midmask.evaluation.statistics.intervals import Variance
from tests.tools.calibrate import write_records

JOINED = replace(UNTRAINED, joined=True)
MLM, MLM_JOINED = (System("mlm", "dense", TUNED, joined=joined) for joined in (False, True))


def level(collection: str, made: float, judged: float) -> LevelRecord:
    return LevelRecord(collection=collection, source="all", made=made, judged=judged)


def gain(system: System, made: float, judged: float, collection: str = "a", **more) -> GainRecord:
    errors = {"made_error": 0.0, "judged_error": 0.01}
    return GainRecord(
        **{"collection": collection, "source": "all", **errors, **more}, system=system, made=made, judged=judged
    )


def test_without_experience_the_assumption_decides() -> None:
    found = level_interval(0.5, [])
    assert found.value == 0.5
    assert found.high - 0.5 == pytest.approx(stats.t.ppf(0.95, 4) * LEVEL.spread) == 0.5 - found.low
    assert Offset.of(JOIN, []).value == 0.04 and Offset.of(TRAINED, []).value == 0.0


def test_a_collection_with_many_records_counts_once() -> None:
    records = [level("a", 0.6, 0.5) for _ in range(9)] + [level("b", 0.6, 0.6)]
    assert level_interval(0.6, records).value == pytest.approx(0.55), "the mean offset is expected here"


def test_a_few_collections_count_beside_what_is_assumed() -> None:
    """By hand: 4 degrees of freedom of 0.15\u00b2 and 2 of the offsets' variance; t with 6."""
    offsets = [-0.28, 0.08, 0.08]
    found = level_interval(0.5, [level(str(n), 0.5, 0.5 + offset) for n, offset in enumerate(offsets)])
    variance = (4 * 0.15**2 + 2 * np.var(offsets, ddof=1)) / 6
    assert found.value == pytest.approx(0.5 + np.mean(offsets))
    margin = stats.t.ppf(0.95, 6) * np.sqrt(variance * (1 + 1 / 3))
    assert (found.high - found.value, found.value - found.low) == pytest.approx((margin, margin))


def test_an_offset_that_is_known_is_not_learned_and_its_scatter_is() -> None:
    """By hand: half of each made gain is expected; 4 degrees of freedom of 0.02\u00b2 and 3 of the residuals."""
    records = [gain(MLM, 0.04, 0.02 + off, name) for name, off in (("a", 0.03), ("b", -0.01), ("c", 0.02))]
    found = Offset.of(TRAINED, records)
    assert found.value == 0.0
    assert found.variance.value == pytest.approx((4 * 0.02**2 + 0.03**2 + 0.01**2 + 0.02**2) / 7)
    assert found.variance.freedom == 7


def test_a_prediction_has_the_weighted_error_of_what_was_made() -> None:
    offset = Offset(Kind("any", weight=0.5, spread=1.0), 0.01, Variance(0.03**2, math.inf))
    differences = [0.1, 0.3, 0.2, 0.4]
    square = np.var(differences, ddof=1) / 4
    found = sum_interval([Prediction(offset, 0.25, Variance.of_mean(differences))])
    variance = 0.25 * square + 0.03**2
    freedom = variance**2 / ((0.25 * square) ** 2 / 3)
    margin = stats.t.ppf(0.95, freedom) * math.sqrt(variance)
    assert (found.low, found.value, found.high) == pytest.approx((0.135 - margin, 0.135, 0.135 + margin))
    ignored = Prediction(Offset(JOIN, 0.07, Variance(0.06**2, 6)), 0.5, Variance.of_mean([0.5]))
    assert sum_interval([ignored]).high == pytest.approx(0.07 + stats.t.ppf(0.95, 6) * 0.06), "nor does its error"


@pytest.mark.parametrize(("spread", "least", "most"), [(LEVEL.spread, 0.9, 0.96), (0.2, 0.84, 0.9)])
def test_intervals_cover_what_they_state(spread: float, least: float, most: float) -> None:
    """Offsets of collections are drawn anew 4,000 times, with the spread that is assumed, and with a larger one."""
    draw, hits = np.random.default_rng(5), 0
    for _ in range(4_000):
        offsets = draw.normal(0.1, spread, 4)
        records = [level(str(number), 0.5, 0.5 + offset) for number, offset in enumerate(offsets[:3])]
        found = level_interval(0.5, records)
        hits += found.low <= 0.5 + offsets[3] <= found.high
    assert least < hits / 4_000 < most


def test_kinds_are_of_what_differs_from_the_reference() -> None:
    """Encoders that begin from fresh weights have no untrained, joined one: over BM25 they are trained and joined."""
    assert kind_of(LEXICAL, over_joined=False) == LEXICAL_GAIN
    assert kind_of(System("mlm", "splade", TUNED), over_joined=False) == WORDS
    assert kind_of(JOINED, over_joined=False) == JOIN
    assert kind_of(MLM_JOINED, over_joined=False) == WORDS
    assert kind_of(MLM_JOINED, over_joined=True) == kind_of(MLM, over_joined=False) == TRAINED
    assert kind_of(System("none", "dense", AS_IS), over_joined=False) == TRAINED


def verdict(trained: float, joined: float, seed: int = 0) -> list[GainRecord]:
    return [
        gain(JOINED, 0.2, joined, seed=seed),
        gain(MLM_JOINED, 0.02, trained, over=JOINED, seed=seed),
        gain(MLM, 0.03, 0.025, seed=seed),
    ]


def test_ranks_regret_and_intervals_are_of_the_sums() -> None:
    """Without other collections 0.04 of the join and half of 0.02: 0.05 with variance 0.06\u00b2 + 0.02\u00b2."""
    (held,) = leave_one_out(verdict(trained=0.01, joined=0.09))
    assert (held.kendall_tau, held.regret, held.covered, held.systems) == (1.0, 0.0, 3, 3)
    (held,) = leave_one_out(verdict(trained=-0.05, joined=0.09))
    judged = [0.0, 0.09, 0.04, 0.025]
    assert held.kendall_tau == pytest.approx(stats.kendalltau([0.0, 0.04, 0.05, 0.015], judged).statistic)
    assert held.regret == pytest.approx(0.09 - 0.04)
    variance = 0.06**2 + 0.02**2
    margin = stats.t.ppf(0.95, variance**2 / (0.06**4 / 4 + 0.02**4 / 4)) * math.sqrt(variance)
    for excess, inside in ((-1e-4, 3), (1e-4, 2)):
        (held,) = leave_one_out(verdict(trained=0.05 + margin + excess - 0.1, joined=0.1))
        assert held.covered == inside


def test_seeds_of_a_collection_are_held_out_together_and_reported_apart() -> None:
    """Each with its own joined system; were they one verdict, the sums of the first would be over the second's."""
    first, second = verdict(0.01, 0.09), verdict(0.01, -0.2, seed=1)
    together = leave_one_out([*first, *second])
    assert [one.seed for one in together] == [0, 1]
    assert together == [leave_one_out(own)[0] for own in (first, second)]
    assert together[0].covered > together[1].covered


def test_a_system_that_is_worse_than_the_baseline_is_not_chosen() -> None:
    assert leave_one_out([gain(MLM, -0.02, 0.03)])[0].regret == pytest.approx(0.03), "the baseline is, whose gain is 0"


def test_the_packages_records_predict_each_other_as_the_documentation_says() -> None:
    held = leave_one_out(load_records())
    covered, systems = sum(one.covered for one in held), sum(one.systems for one in held)
    assert 0.85 <= covered / systems <= 0.97
    assert max(one.regret for one in held) <= 0.008
    assert np.mean([one.kendall_tau for one in held]) > 0.68
    offsets = gain_offsets(load_records())
    assert 0.03 < offsets[JOIN].value < 0.1 and offsets[TRAINED].variance.value < offsets[WORDS].variance.value
    assert all(0 <= one.made <= 1 and 0 <= one.judged <= 1 for one in load_levels())


def test_records_are_read_as_they_were_written_and_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    gains, levels = verdict(0.01, 0.09), [level("squad", 0.61, 0.68)]
    write_records(gains, tmp_path / "gains.jsonl")
    write_records(levels, tmp_path / "levels.jsonl")
    assert load_records(tmp_path / "gains.jsonl") == gains
    assert load_levels(tmp_path / "levels.jsonl") == levels
    with pytest.raises(UserError, match=r"levels\.jsonl, line 1: system: a value is required"):
        load_records(tmp_path / "levels.jsonl")
