"""Estimates and the recommendation, budgets and costs; what people's queries are expected to say, by hand, against
scipy, and of each collection from the others.
"""

import math
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from midmask.benchmark.layout import BenchmarkCell, cell_of, recipe_of
from midmask.benchmark.results import Result
from midmask.choice.assess import Gains, MeasuredSystem, estimates, recommend
from midmask.choice.calibration import (
    JOIN,
    LEVEL,
    LEXICAL_GAIN,
    TRAINED,
    WORDS,
    CalibrationFile,
    GainRecord,
    Kind,
    LevelRecord,
    Offset,
    Prediction,
    kind_of,
    level_interval,
    sum_interval,
)
from midmask.choice.contenders import (
    AS_IS,
    LEXICAL,
    MEASURE,
    TUNED,
    UNTRAINED,
    Size,
    System,
    budget_seconds,
    contest,
    first_contenders,
)
from midmask.choice.contest import LocalWorkshop, Prices
from midmask.choice.contest_terms import ENOUGH, FEWEST_STEPS, SHORTEST, Limits, affordable, first_round, room
from midmask.errors import UserError
from midmask.estimate.devices import this_machine
from midmask.evaluation.statistics.intervals import Variance
from midmask.experiment.training_steps import Survey
from tests.support.benchmark.tiny import write_collection
from tests.support.choice import documents as contests
from tests.tools.calibrate import RECORDS, calibrate, leave_one_out, offset_of, read_records, write_records


def offset(spread: float, freedom: float = 30, value: float = 0.0) -> Offset:
    return Offset(value, Variance(spread**2, freedom))


KNOWN = {LEVEL: offset(0.15, 4), **dict.fromkeys((TRAINED, WORDS, LEXICAL_GAIN, JOIN), offset(0.005))}
BASE = UNTRAINED


def tuned(recipe: str) -> System:
    return System(recipe, "dense", TUNED)


JOINED, TUNED_JOINED = (replace(system, joined=True) for system in (UNTRAINED, tuned("mlm")))


def measured(of: System, mean: float, seconds: float, split: str = "test", seed: int = 0) -> MeasuredSystem:
    """400 queries around a mean, with the same difficulty for all systems."""
    difficulty = np.random.default_rng(1).uniform(-0.2, 0.2, 400)
    own = np.random.default_rng(crc32(of.recipe.encode()) + seed).normal(0, 0.02, 400)
    own -= own.mean()
    values = mean + difficulty - difficulty.mean() + own
    table = pa.table({"query_id": [str(n) for n in range(400)], "measure": [MEASURE] * 400, "value": values})
    result = Result(of.key, 0, "made", split, {MEASURE: float(values.mean())}, table)
    return MeasuredSystem(of, result, seconds, 768.0, f"/models/{of.recipe}", finalist=split == "test")


def test_gains_are_paired_and_shrunk():
    systems = [measured(BASE, 0.5, 1), measured(tuned("mlm"), 0.6, 10)]
    found = {one.system: one for one in estimates(systems, Gains(KNOWN, {"test": systems[0].result}))}
    assert found["mlm"].gain == pytest.approx(0.5 * 0.1)
    assert found["mlm"].gain_low < 0.05 < found["mlm"].gain_high
    assert found["mlm"].gain_high - found["mlm"].gain_low < 0.03, "the queries' difficulty cancels"
    assert (found["as it is"].gain, found["as it is"].gain_low, found["as it is"].gain_high) == (0, 0, 0)
    assert found["mlm"].estimate == pytest.approx(0.55)
    assert found["mlm"].low < found["as it is"].estimate < found["mlm"].high, "levels are known less well than gains"


def test_the_made_gain_is_what_was_measured_here_whatever_other_collections_say():
    """A join with BM25, of which other collections' mean is expected; the reference is scipy's paired t-test."""
    systems = [measured(BASE, 0.5, 1), measured(JOINED, 0.617, 1, seed=3)]
    gains = Gains({**KNOWN, JOIN: offset(0.06, 4, value=0.067)}, {"test": systems[0].result})
    (found,) = (one for one in estimates(systems, gains) if one.made_gain)
    ours, base = (one.result.per_query["value"].to_numpy() for one in systems[::-1])
    reference = stats.ttest_rel(ours, base).confidence_interval(0.9)
    assert found.gain == pytest.approx(0.067) and found.made_gain == pytest.approx((ours - base).mean())
    assert (found.made_low, found.made_high) == pytest.approx((reference.low, reference.high))
    assert found.training == "none"


def test_finalists_rank_before_those_that_were_given_up():
    dev = measured(BASE, 0.5, 1, split="dev")
    systems = [measured(BASE, 0.5, 1), measured(tuned("mlm"), 0.52, 9), measured(tuned("simcse"), 0.7, 9, split="dev")]
    found = estimates(systems, Gains(KNOWN, {"test": systems[0].result, "dev": dev.result}))
    assert [(one.system, one.rank) for one in found] == [("mlm", 1), ("as it is", 2), ("simcse", 3)]


def advice(*systems: MeasuredSystem):
    gains = Gains(KNOWN, {"test": systems[0].result})
    return recommend(estimates(systems, gains), systems, gains)


@pytest.mark.parametrize(
    ("mlm", "retromae", "chosen", "distinguishable"),
    [(0.55, 0.65, "retromae", True), (0.599, 0.6, "mlm", True), (0.4, 0.4, "as it is", False)],
    ids=["a clear winner", "of two alike the cheaper", "nothing helps"],
)
def test_who_is_recommended(mlm: float, retromae: float, chosen: str, distinguishable: bool):
    """Over a baseline of 0.5 that costs a second; MLM costs ten, RetroMAE hours."""
    found = advice(measured(BASE, 0.5, 1), measured(tuned("mlm"), mlm, 10), measured(tuned("retromae"), retromae, 9999))
    assert (found.system, found.distinguishable) == (chosen, distinguishable)


def test_a_cheap_one_that_may_be_as_good_is_not_taken_where_little_is_known():
    """With a wide interval everything is alike; what is 5 points behind is left all the same."""
    systems = [measured(BASE, 0.5, 1), measured(tuned("mlm"), 0.55, 10)]
    vague = Gains({**KNOWN, TRAINED: offset(0.2, 3)}, {"test": systems[0].result})
    found = recommend(estimates(systems, vague), systems, vague)
    assert found.system == "mlm" and not found.distinguishable


def test_what_is_joined_with_bm25_is_held_against_the_untrained_encoder_that_is():
    """On dev, a smaller collection, words gain less; what training gains is the same."""
    base = {split: measured(BASE, 0.5, 1, split=split).result for split in ("test", "dev")}
    joined = {"test": measured(JOINED, 0.6, 1).result, "dev": measured(JOINED, 0.52, 1, split="dev").result}
    gains = Gains({TRAINED: offset(0.01), JOIN: offset(0.1, 4, value=0.05)}, base, joined)
    on_dev = gains.expected(measured(TUNED_JOINED, 0.55, 9, split="dev").result)
    on_test = gains.expected(measured(TUNED_JOINED, 0.63, 9).result)
    assert on_dev.value == pytest.approx(0.05 + 0.5 * 0.03) == pytest.approx(on_test.value)
    assert gains.expected(joined["test"]).value == pytest.approx(0.05)
    assert on_test.high - on_test.low > 2 * 0.1, "what words gain is in doubt"
    first, second = measured(TUNED_JOINED, 0.66, 9).result, measured(JOINED, 0.6, 1).result
    assert gains.is_behind(second, first), "what words gain in doubt is the same for both"
    assert not gains.is_behind(measured(BASE, 0.5, 1).result, first)


WIDE = Limits(passages=10**9, queries=10**9)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("8h", 28800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400), ("2h15m30s", 8130)],
)
def test_a_budget_is_read_as_it_is_written(text, seconds):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m30", "-5m", "5m?", "59s"])
def test_another_form_and_what_cannot_be_are_refused(text):
    with pytest.raises(UserError, match="at least a minute, such as 30m, 8h"):
        budget_seconds(text)


def linear(fixed: float, pretrain: float, finetune: float):
    return lambda size: fixed + pretrain * size.pretrain + finetune * size.finetune


def round_price(each: float, encoding: float):
    """Two contenders need no training and are encoded like the others."""
    return lambda count, size: count * encoding + (count - 2) * each * (size.pretrain + size.finetune)


SIZE, STEP = st.integers(1, 5_000), st.floats(0.001, 5)


@given(fixed=st.floats(0, 100), pretrain=STEP, finetune=STEP, seconds=st.floats(1, 5_000), passages=SIZE, queries=SIZE)
def test_the_longest_trainings_that_fit_are_found(fixed, pretrain, finetune, seconds, passages, queries):
    price, limits = linear(fixed, pretrain, finetune), Limits(passages, queries)
    size = affordable(price, seconds, limits)
    if size is None:
        assert price(Size(FEWEST_STEPS, FEWEST_STEPS)) > seconds
        return
    assert price(size) <= seconds * (1 + 1e-9)
    longer = limits.size(max(size.pretrain, size.finetune) + 1)
    assert longer == size or price(longer) > seconds * (1 - 1e-9)


@given(seconds=st.floats(1, 20_000), most=st.integers(2, 9), each=st.floats(0.01, 3), encoding=st.floats(0, 200))
def test_a_round_has_as_many_contenders_as_can_be_trained_at_all(seconds, most, each, encoding):
    price = round_price(each, encoding)
    found, least = room(price, 2, most, seconds, WIDE), Size(FEWEST_STEPS, FEWEST_STEPS)
    fitting = [count for count in range(3, most + 1) if price(count, least) <= seconds]
    assert (found[0] if found else 0) == max(fitting, default=0)


def test_shortest_trainings_that_are_there_already_make_longer_ones_no_dearer():
    """Their encoding is there as well: what is left of the price is not what a step costs."""
    price = linear(60.0, 1.0, 1.0)
    cached = Size(FEWEST_STEPS, FEWEST_STEPS)
    known = affordable(lambda size: 0.0 if size == cached else price(size), 500.0, WIDE)
    assert known == affordable(price, 500.0, WIDE) == Size(220, 220)


@given(left=st.floats(1, 20_000), most=st.integers(2, 9), each=st.floats(0.01, 3), encoding=st.floats(0, 200))
def test_a_first_round_takes_its_share_if_that_trains_enough_else_all(left, most, each, encoding):
    price = round_price(each, encoding)
    found = first_round(price, 2, most, left, 3, WIDE)
    share, whole = (room(price, 2, most, seconds, WIDE) for seconds in (left / 3, left))
    enough = min(most, 2 + ENOUGH)
    if found.seconds == left / 3:
        assert (found.count, found.size) == share and found.count >= enough
    else:
        assert found.seconds == left and (share is None or share[0] < enough)
        assert (found.count, found.size) == (whole or (2, SHORTEST))


@pytest.fixture
def cells_of(tmp_path: Path):
    corpus, survey = write_collection(tmp_path / "tiny"), Survey()

    def cells(contender: System, size: Size, split: str) -> list[BenchmarkCell]:
        benchmark = contest(corpus, ["none", "mlm"], size, [split], contests.CHANGES, 0)
        keys = [each.key for each in contender.searched]
        return [cell_of(benchmark, key, recipe_of(benchmark, key).seeded(0), 0, survey) for key in keys]

    return cells


@pytest.fixture
def workshop(tmp_path: Path) -> LocalWorkshop:
    return contests.workshop(tmp_path)


_, ONLY_TUNED, MLM = first_contenders(["none", "mlm"], "tiny")


def test_trainings_keep_their_price_and_all_else_follows_what_was_measured(cells_of, workshop) -> None:
    sizes = [Size(100, 100), Size(100, 200)]
    before = [Prices(cells_of, workshop, None).of_round([ONLY_TUNED], size) for size in sizes]
    prices = Prices(cells_of, workshop, None)
    expected = prices.of_round([LEXICAL], Size(20, 20))
    prices.learn([LEXICAL], Size(20, 20), lambda: 1e4 * expected + 2.0)
    pace = (1e4 * expected + 2.0) / expected
    assert prices.per_utilisation == pytest.approx(pace / this_machine().device.utilisation)
    assert prices.of_round([LEXICAL], Size(20, 20)) == pytest.approx(pace * expected)
    after = [prices.of_round([ONLY_TUNED], size) for size in sizes]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0]), "a hundred steps more cost the same"
    assert after[0] > 2 * before[0], "and encoding and searching more"
    again = Prices(cells_of, workshop, prices.per_utilisation)
    assert again.of_round([ONLY_TUNED], sizes[0]) == pytest.approx(after[0])


def test_test_queries_cost_no_training(cells_of, workshop) -> None:
    prices = Prices(cells_of, workshop, None)
    prices.learn([LEXICAL], Size(20, 20), lambda: 0.5)
    assert prices.per_utilisation is None, "what takes no time teaches nothing"
    short = prices.of_tests([LEXICAL, MLM], lambda _: Size(20, 20))
    long = prices.of_tests([LEXICAL, MLM], lambda _: Size(900, 900))
    assert 0 < short == pytest.approx(long)
    assert short > prices.of_tests([LEXICAL], lambda _: Size(20, 20))


def level(collection: str, made: float, judged: float) -> LevelRecord:
    return LevelRecord(collection=collection, source="all", made=made, judged=judged)


def gain(system: System, made: float, judged: float, collection: str = "a", **more) -> GainRecord:
    given = {"collection": collection, "source": "all", "made_error": 0.0, "judged_error": 0.01, **more}
    return GainRecord(**given, system=system, made=made, judged=judged)


def test_without_experience_the_assumption_decides() -> None:
    found = level_interval(0.5, offset_of(LEVEL, []))
    assert found.value == 0.5
    assert found.high - 0.5 == pytest.approx(stats.t.ppf(0.95, 4) * LEVEL.spread) == 0.5 - found.low
    assert offset_of(JOIN, []).value == 0.04 and offset_of(TRAINED, []).value == 0.0


def test_a_collection_with_many_records_counts_once() -> None:
    records = [level("a", 0.6, 0.5) for _ in range(9)] + [level("b", 0.6, 0.6)]
    assert level_interval(0.6, offset_of(LEVEL, records)).value == pytest.approx(0.55), (
        "the mean offset is expected here"
    )


def test_a_few_collections_count_beside_what_is_assumed() -> None:
    """By hand: 4 degrees of freedom of 0.15\u00b2 and 2 of the offsets' variance; t with 6."""
    offsets = [-0.28, 0.08, 0.08]
    records = [level(str(n), 0.5, 0.5 + offset) for n, offset in enumerate(offsets)]
    found = level_interval(0.5, offset_of(LEVEL, records))
    variance = (4 * 0.15**2 + 2 * np.var(offsets, ddof=1)) / 6
    assert found.value == pytest.approx(0.5 + np.mean(offsets))
    margin = stats.t.ppf(0.95, 6) * np.sqrt(variance * (1 + 1 / 3))
    assert (found.high - found.value, found.value - found.low) == pytest.approx((margin, margin))


def test_an_offset_that_is_known_is_not_learned_and_its_scatter_is() -> None:
    """By hand: half of each made gain is expected; 4 degrees of freedom of 0.02\u00b2 and 3 of the residuals."""
    records = [gain(MLM, 0.04, 0.02 + off, name) for name, off in (("a", 0.03), ("b", -0.01), ("c", 0.02))]
    found = offset_of(TRAINED, records)
    assert found.value == 0.0
    assert found.variance.value == pytest.approx((4 * 0.02**2 + 0.03**2 + 0.01**2 + 0.02**2) / 7)
    assert found.variance.freedom == 7


def test_a_prediction_has_the_weighted_error_of_what_was_made() -> None:
    kind, offset = Kind("any", weight=0.5, spread=1.0), Offset(0.01, Variance(0.03**2, math.inf))
    differences = [0.1, 0.3, 0.2, 0.4]
    square = np.var(differences, ddof=1) / 4
    found = sum_interval([Prediction(kind, offset, 0.25, Variance.of_mean(differences))])
    variance = 0.25 * square + 0.03**2
    freedom = variance**2 / ((0.25 * square) ** 2 / 3)
    margin = stats.t.ppf(0.95, freedom) * math.sqrt(variance)
    assert (found.low, found.value, found.high) == pytest.approx((0.135 - margin, 0.135, 0.135 + margin))
    ignored = Prediction(JOIN, Offset(0.07, Variance(0.06**2, 6)), 0.5, Variance.of_mean([0.5]))
    assert sum_interval([ignored]).high == pytest.approx(0.07 + stats.t.ppf(0.95, 6) * 0.06), "nor does its error"


def test_kinds_are_of_what_differs_from_the_reference() -> None:
    """Encoders that begin from fresh weights have no untrained, joined one: over BM25 they are trained and joined."""
    assert kind_of(LEXICAL, over_joined=False) == LEXICAL_GAIN
    assert kind_of(System("mlm", "splade", TUNED), over_joined=False) == WORDS
    assert kind_of(JOINED, over_joined=False) == JOIN
    assert kind_of(TUNED_JOINED, over_joined=False) == WORDS
    assert kind_of(TUNED_JOINED, over_joined=True) == kind_of(MLM, over_joined=False) == TRAINED
    assert kind_of(System("none", "dense", AS_IS), over_joined=False) == TRAINED


def verdict(trained: float, joined: float, seed: int = 0) -> list[GainRecord]:
    return [
        gain(JOINED, 0.2, joined, seed=seed),
        gain(TUNED_JOINED, 0.02, trained, over=JOINED, seed=seed),
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


def test_the_packages_calibration_is_that_of_the_records_and_as_the_documentation_says() -> None:
    stored = CalibrationFile.load()
    assert stored == calibrate(RECORDS)
    held = leave_one_out(read_records(RECORDS)[0])
    assert 0.85 <= stored.calibration.coverage <= 0.97
    assert max(one.regret for one in held) <= 0.008 and stored.calibration.kendall_tau > 0.68
    offsets = stored.by_kind
    assert 0.03 < offsets[JOIN].value < 0.1 and offsets[TRAINED].variance.value < offsets[WORDS].variance.value


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    gains, levels = verdict(0.01, 0.09), [level("squad", 0.61, 0.68)]
    write_records(gains, tmp_path / "gains.jsonl")
    write_records(levels, tmp_path / "levels.jsonl")
    assert read_records(tmp_path) == (gains, levels)
