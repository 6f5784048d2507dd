"""Long curves are thinned without losing what stands out."""

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from midmask.leaderboard.training import thin
from midmask.tracking.histories import MetricPoint


@given(rng=st.randoms(use_true_random=False), count=st.integers(0, 300), most=st.integers(4, 60))
def test_a_thinned_curve_keeps_its_ends_and_its_extremes(rng: Random, count: int, most: int) -> None:
    history = [MetricPoint(10 * step, float(value), 0.0) for step, value in enumerate(rng.sample(range(count), count))]
    found = thin(history, most)
    assert len(found) <= most and [point for point in history if point in set(found)] == found
    if count <= most:
        assert found == history
    else:
        assert found[0] == history[0] and found[-1] == history[-1]
        assert {0.0, count - 1.0} <= {point.value for point in found}


@given(most=st.integers(8, 40))
def test_points_are_spread_over_the_whole_curve(most: int) -> None:
    found = thin([MetricPoint(step, (step % 7) / 7, 0.0) for step in range(10_000)], most)
    gaps = [later.step - earlier.step for earlier, later in pairwise(found)]
    assert max(gaps) <= 2 * 10_000 / ((most - 2) // 2)
