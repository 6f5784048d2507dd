"""Long curves are thinned without losing what stands out."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from midmask.leaderboard.training import thinned

VALUES = st.lists(st.floats(-1e6, 1e6), max_size=300)


@settings(deadline=None)
@given(values=VALUES, most=st.integers(4, 60))
def test_a_thinned_curve_keeps_its_ends_and_its_extremes(values: list[float], most: int) -> None:
    history = [(10 * number, value) for number, value in enumerate(values)]
    found = thinned(history, most)
    assert len(found) <= most and [point for point in history if point in set(found)] == found
    if len(values) <= most:
        assert found == history
    else:
        assert found[0] == history[0] and found[-1] == history[-1]
        assert {min(values), max(values)} <= {value for _, value in found}


@settings(deadline=None)
@given(most=st.integers(8, 40))
def test_points_are_spread_over_the_whole_curve(most: int) -> None:
    found = thinned([(step, (step % 7) / 7) for step in range(10_000)], most)
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(found)]
    assert max(gaps) <= 2 * 10_000 / ((most - 2) // 2)
