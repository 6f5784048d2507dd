"""Estimates, the recommendation, records of gains and levels; budgets, and what a contest is expected to cost."""

import json
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from midmask.benchmark.layout import BenchmarkCell, cell_of, recipe_of
from midmask.benchmark.results import Result, SystemKey
from midmask.choice.assess import (
    JOIN,
    TRAINED,
    WORDS,
    Counterparts,
    Experience,
    MeasuredSystem,
    estimates,
    kind_of,
    recommend,
)
from midmask.choice.calibration import (
    PRIOR_SPREAD,
    Fit,
    GainRecord,
    LevelRecord,
    level_interval,
    load_levels,
    load_records,
    write_levels,
    write_records,
)
from midmask.choice.contenders import AS_IS, LEXICAL, MEASURE, TUNED, Contender, Size, contest, first_contenders
from midmask.choice.contest import LocalWorkshop, Prices
from midmask.choice.contest_terms import (
    ENOUGH,
    FEWEST_STEPS,
    SHORTEST,
    Limits,
    affordable,
    budget_seconds,
    first_round,
    room,
)
from midmask.errors import UserError
from midmask.estimate.devices import this_machine
from midmask.experiment.training_steps import Survey
from tests.support.benchmark.tiny import write_collection
from tests.support.choice import documents as contests

SURE = Fit(shrink=0.8, between=0.005, freedom=30, collections=("a", "b", "c"))
KNOWN = Experience({"trained": SURE, "with BM25": SURE, "bm25": SURE}, [])
BASE = SystemKey("none", "none", "dense", AS_IS)


def key(system: str) -> SystemKey:
    return SystemKey(system, "corpus", "dense", TUNED)


def measured(of: SystemKey, mean: float, seconds: float, split: str = "test", seed: int = 0) -> MeasuredSystem:
    """400 queries around a mean, with the same difficulty for all systems."""
    difficulty = np.random.default_rng(1).uniform(-0.2, 0.2, 400)
    own = np.random.default_rng(crc32(of.system.encode()) + seed).normal(0, 0.02, 400)
    own -= own.mean()
    values = mean + difficulty - difficulty.mean() + own
    table = pa.table(
        {"query_id": [str(n) for n in range(400)], "measure": [MEASURE] * 400, "value": values.astype(np.float64)}
    )
    result = Result(of, 0, "made", split, {MEASURE: float(values.mean())}, table)
    return MeasuredSystem(of, result, seconds, 768.0, f"/models/{of.system}", finalist=split == "test")


def test_gains_are_paired_and_shrunk():
    systems = [measured(BASE, 0.5, 1), measured(key("mlm"), 0.6, 10)]
    found = {one.system: one for one in estimates(systems, Counterparts({"test": systems[0].result}), KNOWN)}
    assert found["mlm"].gain == pytest.approx(0.8 * 0.1)
    assert found["mlm"].gain_low < 0.08 < found["mlm"].gain_high
    assert found["mlm"].gain_high - found["mlm"].gain_low < 0.03, "the queries' difficulty cancels"
    assert (found["as it is"].gain, found["as it is"].gain_low, found["as it is"].gain_high) == (0, 0, 0)
    assert found["mlm"].estimate == pytest.approx(0.58)
    assert found["mlm"].low < found["as it is"].estimate < found["mlm"].high, "levels are known less well than gains"


def test_the_made_gain_is_what_was_measured_here_whatever_other_collections_say():
    """A join with BM25, of which other collections' mean is expected; the reference is scipy's paired t-test."""
    joined = SystemKey("none", "none", "dense", AS_IS + " with BM25")
    systems = [measured(BASE, 0.5, 1), measured(joined, 0.617, 1, seed=3)]
    known = Experience({**KNOWN.gains, JOIN: Fit(shrink=0.0, bias=-0.067, between=0.06, freedom=4)}, [])
    (found,) = (one for one in estimates(systems, Counterparts({"test": systems[0].result}), known) if one.made_gain)
    ours, base = (one.result.per_query["value"].to_numpy() for one in systems[::-1])
    reference = stats.ttest_rel(ours, base).confidence_interval(0.9)
    assert found.gain == pytest.approx(0.067) and found.made_gain == pytest.approx((ours - base).mean())
    assert (found.made_low, found.made_high) == pytest.approx((reference.low, reference.high))
    assert found.training == "none"


def test_finalists_rank_before_those_that_were_given_up():
    dev = measured(BASE, 0.5, 1, split="dev")
    systems = [measured(BASE, 0.5, 1), measured(key("mlm"), 0.52, 9), measured(key("simcse"), 0.7, 9, split="dev")]
    found = estimates(systems, Counterparts({"test": systems[0].result, "dev": dev.result}), KNOWN)
    assert [(one.system, one.rank) for one in found] == [("mlm", 1), ("as it is", 2), ("simcse", 3)]


def advice(*systems: MeasuredSystem):
    ranked = estimates(systems, Counterparts({"test": systems[0].result}), KNOWN)
    return recommend(ranked, systems, Counterparts({"test": systems[0].result}), KNOWN)


@pytest.mark.parametrize(
    ("mlm", "retromae", "chosen", "distinguishable"),
    [(0.55, 0.65, "retromae", True), (0.599, 0.6, "mlm", True), (0.4, 0.4, "as it is", False)],
    ids=["a clear winner", "of two alike the cheaper", "nothing helps"],
)
def test_who_is_recommended(mlm: float, retromae: float, chosen: str, distinguishable: bool):
    """Over a baseline of 0.5 that costs a second; MLM costs ten, RetroMAE hours."""
    found = advice(measured(BASE, 0.5, 1), measured(key("mlm"), mlm, 10), measured(key("retromae"), retromae, 9999))
    assert (found.system, found.distinguishable) == (chosen, distinguishable)


def test_a_cheap_one_that_may_be_as_good_is_not_taken_where_little_is_known():
    """With a wide interval everything is alike; what is 5 points behind is left all the same."""
    vague = Experience({"trained": Fit(shrink=1.0, between=0.2, freedom=3)}, [])
    systems = [measured(BASE, 0.5, 1), measured(key("mlm"), 0.55, 10)]
    counterparts = Counterparts({"test": systems[0].result})
    found = recommend(estimates(systems, counterparts, vague), systems, counterparts, vague)
    assert found.system == "mlm" and not found.distinguishable


def test_kinds_of_systems_are_fitted_apart():
    """On made queries BM25 gains 0.3 that people's queries do not show; an encoder's gain is real."""
    records = [
        GainRecord(name, "all", system, made, 0.001, judged + jitter, 0.001)
        for name, jitter in (("a", 0.001), ("b", -0.001), ("c", 0.0))
        for system, made, judged in (("bm25 · bm25", 0.3, 0.0), ("mlm · dense", 0.05, 0.05))
    ]
    known, without = Experience.of(records, []), Experience.of([], [])
    assert without.gains["trained"].shrink == 1 and without.gains["bm25"].between > without.gains["trained"].between
    lexical = SystemKey("bm25", "none", "bm25", "none")
    over = Counterparts({"test": measured(BASE, 0.5, 1).result})
    assert known.gain(measured(lexical, 0.8, 1).result, over).value == pytest.approx(0.0, abs=0.01)
    assert known.gain(measured(key("mlm"), 0.55, 1).result, over).value == pytest.approx(0.05, abs=0.005)


JOINED = SystemKey("none", "none", "dense", f"{AS_IS} with BM25")
TUNED_JOINED = SystemKey("mlm", "corpus", "dense", f"{TUNED} with BM25")


def test_what_is_joined_with_bm25_is_held_against_the_untrained_encoder_that_is():
    """On dev, a smaller collection, words gain less; what training gains is the same."""
    base = {split: measured(BASE, 0.5, 1, split=split).result for split in ("test", "dev")}
    joined = {"test": measured(JOINED, 0.6, 1).result, "dev": measured(JOINED, 0.52, 1, split="dev").result}
    counterparts = Counterparts(base, joined)
    halved, sure = Fit(shrink=0.5, between=0.1, freedom=4), Fit(shrink=1.0, between=0.01, freedom=30)
    known = Experience({"trained": sure, "with BM25": halved}, [])
    on_dev = known.gain(measured(TUNED_JOINED, 0.55, 9, split="dev").result, counterparts)
    on_test = known.gain(measured(TUNED_JOINED, 0.63, 9).result, counterparts)
    assert on_dev.value == pytest.approx(0.5 * 0.1 + 0.03) == pytest.approx(on_test.value)
    assert known.gain(joined["test"], counterparts).value == pytest.approx(0.05)
    assert on_test.high - on_test.low > 2 * 0.1, "what words gain is in doubt"
    first, second = measured(TUNED_JOINED, 0.66, 9), measured(JOINED, 0.6, 1)
    assert known.is_behind(second, first, counterparts), "what words gain in doubt is the same for both"
    assert not known.is_behind(measured(BASE, 0.5, 1), first, counterparts)


def test_what_is_expected_of_the_join_alone_is_not_expected_of_a_training():
    """Encoders that begin from fresh weights have no untrained, joined one: over BM25 they are trained and joined."""
    joined = "dense with BM25"
    assert kind_of("as it is", joined, over_joined=False) == JOIN
    assert kind_of("mlm", joined, over_joined=False) == WORDS
    assert kind_of("mlm", joined, over_joined=True) == kind_of("mlm", "dense", over_joined=False) == TRAINED


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
NUMBER = st.floats(-1, 1, allow_nan=False)
ERROR = st.floats(0, 1)
LINE = {"collection": "a", "source": "all", "system": "s", "made": 0.1, "made_error": 0.01, "judged": 0.2, "over": ""}
WHOLE = {**LINE, "judged_error": 0.02, "seed": 0}


@given(
    st.lists(st.builds(GainRecord, TEXT, TEXT, TEXT, NUMBER, ERROR, NUMBER, ERROR, TEXT, st.integers(0)), max_size=5)
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, records: list[GainRecord]) -> None:
    path = tmp_path_factory.mktemp("records") / "found.jsonl"
    write_records(records, path)
    path.write_text("\n" + path.read_text() + "  \n")
    assert load_records(path) == records, "blank lines are skipped"
    assert all(isinstance(one, GainRecord) for one in load_records()), "the package's own"


@pytest.mark.parametrize(("line", "said"), [
    ("{", "no JSON"), ("[1]", "is no record"), (json.dumps(LINE), "collection, source"),
    (json.dumps({**WHOLE, "more": 1}), "is no record"), (json.dumps({**WHOLE, "made": True}), "made = True"),
    (json.dumps({**WHOLE, "judged": float("nan")}), "judged = nan"),
    (json.dumps({**WHOLE, "made_error": -0.1}), "made_error = -0.1"),
    (json.dumps({**WHOLE, "source": 3}), "source = 3"),
])  # fmt: skip
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "found.jsonl"
    path.write_text(f"{json.dumps(WHOLE)}\n{line}\n")
    with pytest.raises(UserError) as error:
        load_records(path)
    assert str(error.value).startswith(f"{path}, line 2: ") and said in str(error.value)


def test_without_experience_the_prior_decides():
    value, low, high = level_interval(0.5, [], 0.9)
    assert value == 0.5
    assert high - value == pytest.approx(1.6448536 * PRIOR_SPREAD) == value - low


def test_a_collection_with_many_records_counts_once():
    records = [LevelRecord("a", str(seed), 0.6, 0.5) for seed in range(9)] + [LevelRecord("b", "all", 0.6, 0.6)]
    assert level_interval(0.6, records, 0.9)[0] == pytest.approx(0.55), "the mean offset is expected here"


@pytest.mark.parametrize(("spread", "least", "most"), [(PRIOR_SPREAD, 0.9, 0.96), (0.2, 0.84, 0.9)])
def test_intervals_cover_what_they_state(spread: float, least: float, most: float):
    """Offsets of collections are drawn anew 4,000 times, with the spread that is assumed, and with a larger one."""
    draw, hits = np.random.default_rng(5), 0
    for _ in range(4_000):
        offsets = draw.normal(0.1, spread, 4)
        records = [LevelRecord(str(number), "all", 0.5, 0.5 + offset) for number, offset in enumerate(offsets[:3])]
        _, low, high = level_interval(0.5, records, 0.9)
        hits += low <= 0.5 + offsets[3] <= high
    assert least < hits / 4_000 < most


def test_a_few_collections_count_beside_what_is_assumed():
    """By hand: 4 degrees of freedom of 0.15\u00b2 and 2 of the offsets' variance; t with 6."""
    offsets = [-0.28, 0.08, 0.08]
    records = [LevelRecord(str(n), "all", 0.5, 0.5 + offset) for n, offset in enumerate(offsets)]
    value, low, high = level_interval(0.5, records, 0.9)
    variance = (4 * 0.15**2 + 2 * np.var(offsets, ddof=1)) / 6
    assert value == pytest.approx(0.5 + np.mean(offsets))
    assert high - value == pytest.approx(stats.t.ppf(0.95, 6) * np.sqrt(variance * (1 + 1 / 3))) == value - low


def test_records_are_read_as_they_were_written(tmp_path):
    records = [LevelRecord("squad", "titles", 0.61, 0.68), LevelRecord("cranfield", "all", 0.5, 0.38)]
    write_levels(records, tmp_path / "levels.jsonl")
    assert load_levels(tmp_path / "levels.jsonl") == records
    assert all(0 <= one.made <= 1 and 0 <= one.judged <= 1 for one in load_levels()), "those that come along"


WIDE = Limits(passages=10**9, queries=10**9)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("8h", 28800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400), ("2h15m30s", 8130)],
)
def test_a_budget_is_read_as_it_is_written(text, seconds):
    assert budget_seconds(text, gpus=0) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "30m, 8h") for text in ("", "30", "m30", "30 m", "-5m", "30min", "5m?")),
        *(("4gpuh", "no GPU"), ("59s", "less than a minute")),
    ],
)
def test_another_form_and_what_cannot_be_are_refused(text, said):
    with pytest.raises(UserError, match=said):
        budget_seconds(text, gpus=0)


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

    def cells(contender: Contender, size: Size, split: str) -> list[BenchmarkCell]:
        benchmark = contest(corpus, ["none", "mlm"], size, [split], contests.CHANGES, 0)
        return [cell_of(benchmark, key, recipe_of(benchmark, key).seeded(0), 0, survey) for key in contender.keys]

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
