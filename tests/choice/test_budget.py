"""Budgets as people write them, and the longest trainings that fit one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.choice.budget import (
    ENOUGH,
    FEWEST_STEPS,
    SHORTEST,
    Clock,
    Limits,
    affordable,
    budget_seconds,
    count_that_fits,
    first_round,
    room,
)
from midmask.choice.contenders import Size
from midmask.errors import UserError

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


@given(seconds=st.floats(1, 5_000), most=st.integers(3, 9), each=st.floats(0.01, 3), encoding=st.floats(0, 200))
def test_a_round_has_as_many_contenders_as_can_be_trained_at_all(seconds, most, each, encoding):
    price = round_price(each, encoding)
    found, least = room(price, 2, most, seconds, WIDE), Size(FEWEST_STEPS, FEWEST_STEPS)
    fits = [count for count in range(3, most + 1) if price(count, least) <= seconds]
    if found is None:
        assert not fits
    else:
        assert found[0] == max(fits)
        assert found[1] == affordable(lambda size: price(found[0], size), seconds, WIDE)


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


def test_what_is_trained_already_takes_part_in_the_first_round_though_nothing_new_fits() -> None:
    def price(count: int, size: Size) -> float:
        return 0.0 if size == SHORTEST and count <= 3 else 60.0 * count

    for left in (10.0, -5.0):
        found = first_round(price, 2, 9, left, 3, WIDE)
        assert (found.count, found.size) == (3, SHORTEST)


@given(most=st.integers(0, 9), least=st.integers(0, 9), each=st.floats(0.1, 10), seconds=st.floats(0, 100))
def test_as_many_of_one_size_as_fit(most, least, each, seconds):
    if least <= most:
        found = count_that_fits(lambda count: count * each, least, most, seconds)
        assert found == max([least, *(count for count in range(least, most + 1) if count * each <= seconds)])


def test_no_training_repeats_a_collection_without_end():
    small = Limits(passages=64, queries=64)
    assert affordable(linear(0, 1e-6, 1e-6), 1e9, small) == Size(40, FEWEST_STEPS)
    assert affordable(linear(0, 1e-6, 1e-6), 1e9, WIDE) == Size(199_999, 199_999)
