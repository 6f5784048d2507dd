"""The time that is left, against the same sums done in float64 with NumPy on simulated timings."""

import numpy as np
import pytest

from midmask.experiment.time_left import OVERHEAD_S, SPREAD, TimeLeft


def after(ran: dict[str, tuple[str, float, float]], waiting: dict[str, tuple[str, float]], lanes: int = 1) -> TimeLeft:
    """Steps that ran one after another: key -> kind, expected and measured seconds; and some that wait."""
    left, now = TimeLeft(), 0.0
    for key, (kind, *_) in {**ran, **waiting}.items():
        left.add(key, kind)
    left.expect({key: expected - OVERHEAD_S for key, (_, expected, *_) in {**ran, **waiting}.items()})
    for key, (kind, _, seconds) in ran.items():
        left.begin(key, kind, now, lanes)
        left.end(key, now + seconds)
        now += seconds
    return left


def test_before_anything_is_measured_the_estimate_holds_and_its_spread() -> None:
    found = after({}, {"a": ("pretrain", 30.0), "b": ("encode", 10.0)}).left(0.0)
    assert found.middle == pytest.approx(40.0)
    factor = np.exp(np.sqrt(2) * SPREAD)
    assert (found.low, found.high) == pytest.approx((40.0 / factor, 40.0 * factor))


def test_each_kind_has_its_pace_and_an_unmeasured_one_that_of_all() -> None:
    """Reference: ratios of sums, and weighted deviations around them; middle and factors are added up by kind."""
    ran = {
        "p0": ("pretrain", 20.0, 50.0), "p1": ("pretrain", 10.0, 16.0), "p2": ("pretrain", 40.0, 120.0),
        "f0": ("finetune", 8.0, 4.0), "f1": ("finetune", 2.0, 1.5),
    }  # fmt: skip
    waiting = {"p3": ("pretrain", 30.0), "f2": ("finetune", 6.0), "e0": ("encode", 12.0)}
    found = after(ran, waiting).left(500.0)

    kinds = np.array([kind for kind, _, _ in ran.values()])
    expected, spent = (np.array([row[number] for row in ran.values()]) for number in (1, 2))
    pace = {kind: spent[kinds == kind].sum() / expected[kinds == kind].sum() for kind in ("pretrain", "finetune")}
    deviations = np.log(spent / expected) - np.log([pace[kind] for kind in kinds])
    count = expected.sum() ** 2 / (expected**2).sum()
    variance = (SPREAD**2 + count * np.average(deviations**2, weights=expected)) / (1 + count)
    known, unknown = 30.0 * pace["pretrain"] + 6.0 * pace["finetune"], 12.0 * spent.sum() / expected.sum()
    factor, wider = np.exp(np.sqrt(variance)), np.exp(np.sqrt(variance + SPREAD**2))
    assert found.middle == pytest.approx(known + unknown, rel=1e-12)
    assert found.low == pytest.approx(known / factor + unknown / wider, rel=1e-12)
    assert found.high == pytest.approx(known * factor + unknown * wider, rel=1e-12)


def test_small_steps_alone_say_nothing_of_the_rest() -> None:
    """A step that was expected to take half a second took ten: of that a training of minutes does not take hours."""
    left = after({"bm25": ("bm25", 0.5, 10.0)}, {"p": ("pretrain", 200.0)})
    assert not left.is_measured
    assert after({"p0": ("pretrain", 10.5, 20.0)}, {"p1": ("pretrain", 199.5)}).is_measured
    assert not after({}, {"p": ("pretrain", 200.0)}).is_measured


def test_steps_whose_begin_and_end_arrive_together_do_not_widen_the_range() -> None:
    """What a trial does arrives once a second: of four steps of half a second, one takes two and three take none."""
    ran = {"p0": ("pretrain", 60.0, 60.0)}
    ran |= {f"e{number}": ("encode", 0.8, 2.0 if number == 0 else 1e-4) for number in range(4)}
    found = after(ran, {"p1": ("pretrain", 60.0)}).left(500.0)
    assert found.high / found.low < np.exp(2 * SPREAD)


def test_two_side_by_side_share_the_clock() -> None:
    """Each is expected to take 10 s of the clock; both take 40 s beside each other, so the pace is 2."""
    left = TimeLeft()
    for key in "abcd":
        left.add(key, "pretrain")
    left.expect(dict.fromkeys("abcd", 10.0 - OVERHEAD_S))
    for key in "ab":
        left.begin(key, "pretrain", 0.0, 2)
    for key in "ab":
        left.end(key, 40.0)
    assert left.left(40.0).middle == pytest.approx(40.0)


def test_a_running_step_goes_on_at_the_rate_of_its_reports() -> None:
    """It took 12 s to begin and then does a tenth in 3 s, so 0.7 of it is left for 21 s after the last report."""
    left = TimeLeft()
    for key in ("runs", "waits"):
        left.add(key, "pretrain")
    left.expect(dict.fromkeys(("runs", "waits"), 21.0 - OVERHEAD_S))
    left.begin("runs", "pretrain", 100.0)
    for tenth in (1, 2, 3):
        left.advance("runs", tenth / 10, 112.0 + 3 * tenth)
    whole = 15.0 + 9 * 3.0
    assert left.left(121.0).middle == pytest.approx(whole - 21.0 + whole)
    assert left.left(125.0).middle == pytest.approx(whole - 25.0 + whole)
    assert left.left(900.0).middle == pytest.approx(whole), "late, it has no time left, and none below zero"


def test_reports_that_arrive_together_tell_no_rate() -> None:
    left = TimeLeft()
    left.add("runs", "pretrain")
    left.expect({"runs": 40.0 - OVERHEAD_S})
    left.begin("runs", "pretrain", 0.0)
    left.advance("runs", 0.1, 10.0)
    assert not left.is_measured
    left.advance("runs", 0.5, 10.001)
    assert not left.is_measured and left.left(10.001).middle == pytest.approx(40.0 - 10.001)
    left.advance("runs", 0.6, 20.0)
    assert left.is_measured and left.left(20.0).middle == pytest.approx(10.0 + 0.9 * 20.0 - 20.0)


def test_the_rest_lies_in_the_range_about_as_often_as_it_says() -> None:
    """Lognormal paces around one that is drawn too, with half the deviation that is assumed at first."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        paces = np.exp(rng.normal(rng.normal(), SPREAD / 2, 12))
        ran = {f"r{number}": ("pretrain", 10.0, 10.0 * pace) for number, pace in enumerate(paces[:6])}
        waiting = {f"w{number}": ("pretrain", 10.0) for number in range(6)}
        found = after(ran, waiting).left(1e6)
        inside += found.low <= 10.0 * paces[6:].sum() <= found.high
    assert inside / 400 > 0.68


def test_a_step_that_nobody_planned_takes_the_place_of_one_of_its_kind() -> None:
    left = after({}, {"p": ("pretrain", 30.0), "e": ("encode", 10.0)})
    assert left.begin("drawn", "pretrain", 0.0, among="ep") == "p"
    assert left.begin("another", "pretrain", 0.0, among="ep") is None
    left.end("drawn", 60.0)
    assert left.left(60.0).middle == pytest.approx(20.0), "the encoding, at the pace of the training"
