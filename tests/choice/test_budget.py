"""Budgets, the longest trainings that fit one, and what a contest is expected to cost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.benchmark.cells import BenchmarkCell, cell_of
from midmask.benchmark.layout import recipe_of
from midmask.choice.budget import (
    ENOUGH,
    FEWEST_STEPS,
    SHORTEST,
    Clock,
    Limits,
    affordable,
    budget_seconds,
    first_round,
    room,
)
from midmask.choice.contenders import LEXICAL, Contender, Size, contest, first_contenders
from midmask.choice.prices import Prices
from midmask.choice.workshop import LocalWorkshop
from midmask.errors import UserError
from midmask.estimate.devices import this_machine
from midmask.experiment.survey import Survey
from tests.support.benchmark.tiny import write_collection
from tests.support.choice import contests

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


def test_what_was_spent_before_counts():
    clock = Clock(100.0, spent=60.0)
    assert 60 <= clock.spent < 70
    assert clock.at(0.9) - clock.at(0.6) == pytest.approx(30)


def linear(fixed: float, pretrain: float, finetune: float):
    return lambda size: fixed + pretrain * size.pretrain + finetune * size.finetune


def round_price(each: float, encoding: float):
    """Two contenders need no training and are encoded like the others."""
    return lambda count, size: count * encoding + (count - 2) * each * (size.pretrain + size.finetune)


@given(
    fixed=st.floats(0, 100),
    pretrain=st.floats(0.001, 5),
    finetune=st.floats(0.001, 5),
    seconds=st.floats(1, 5_000),
    passages=st.integers(1, 5_000),
    queries=st.integers(1, 5_000),
)
def test_the_longest_trainings_that_fit_are_found(fixed, pretrain, finetune, seconds, passages, queries):
    price, limits = linear(fixed, pretrain, finetune), Limits(passages, queries)
    size = affordable(price, seconds, limits)
    if size is None:
        assert price(Size(FEWEST_STEPS, FEWEST_STEPS)) > seconds
        return
    assert price(size) <= seconds * (1 + 1e-9)
    longer = limits.size(max(size.pretrain, size.finetune) + 1)
    assert longer == size or price(longer) > seconds * (1 - 1e-9)


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
