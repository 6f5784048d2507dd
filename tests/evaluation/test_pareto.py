"""The front against its definition, point by point."""

from hypothesis import given
from hypothesis import strategies as st

from midmask.evaluation.pareto import on_front

VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), max_size=14)


def dominates(one, other, modes) -> bool:
    gains = [(a - b) if mode == "max" else (b - a) for a, b, mode in zip(one, other, modes, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


@given(VALUES, st.tuples(*[st.sampled_from(["max", "min"])] * 3))
def test_the_front_is_what_nothing_dominates(values, modes):
    brute = [not any(dominates(other, own, modes) for other in values) for own in values]
    assert on_front(values, modes) == brute


def test_with_one_value_the_front_is_the_best_and_its_equals():
    assert on_front([[3.0], [5.0], [5.0]], ["max"]) == [False, True, True]
    assert on_front([[3.0], [5.0], [5.0]], ["min"]) == [True, False, False]
