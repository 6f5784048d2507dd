"""Curves of trainings: their axes, smoothing, means and thinning; and what happened, told from the histories."""

import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.leaderboard.training import Curves, mean_history, smooth, spent, thin
from midmask.leaderboard.training_events import events
from midmask.tracking.histories import History, MetricPoint
from tests.support.dashboards import compared

STEPS = [5, 10, 20, 40]
BEGAN = 1_795_000_000.0


def history(values: list[float], seconds: float = 0.0) -> History:
    return [MetricPoint(step, value, BEGAN + seconds * step) for step, value in zip(STEPS, values, strict=True)]


def told(steps: int = 40, **lines: History) -> Curves:
    run = compared.changed(compared.tracked_rows()[0], pretrain__steps=str(steps))
    return Curves(run, "pretrain", {name.replace("__", "/"): own for name, own in lines.items()})


@given(data=st.data())
def test_tokens_and_hours_are_sums_over_the_steps(data: st.DataObject) -> None:
    numbers = st.lists(st.floats(0.1, 50), min_size=40, max_size=40)
    seconds_S, tokens_S = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    spans = [slice(before, after) for before, after in zip([0, *STEPS[:-1]], STEPS, strict=True)]
    throughput = history([float(tokens_S[span].sum() / seconds_S[span].sum()) for span in spans])
    tokens, hours = spent(throughput, history([float(seconds_S[span].mean()) for span in spans]))
    assert list(tokens.values()) == pytest.approx([tokens_S[:step].sum() for step in STEPS])
    assert list(hours.values()) == pytest.approx([seconds_S[:step].sum() / 3600 for step in STEPS])
    assert spent([], history([1.0] * 4))[0] == {}, "no tokens are known"


@given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=30), points=st.sampled_from([1, 3, 5, 51]))
def test_a_smooth_value_is_the_mean_of_its_neighbours(values: list[float], points: int) -> None:
    found = smooth([MetricPoint(at, value, 0.0) for at, value in enumerate(values)], points)
    half = (points - 1) // 2
    expected = [np.mean(values[max(0, at - half) : at + half + 1]) for at in range(len(values))]
    assert [point.value for point in found] == pytest.approx(expected)


def test_a_mean_is_taken_where_all_have_a_value() -> None:
    first, second = history([1.0, 2.0, 3.0, 4.0]), history([3.0, 4.0, 5.0, 6.0])[1:]
    assert [(point.step, point.value) for point in mean_history([first, second])] == [(10, 3.0), (20, 4.0), (40, 5.0)]
    assert mean_history([first]) == first and mean_history([]) == []


def test_a_pause_between_two_points_is_a_resumption() -> None:
    loss = history([3.0, 2.0, 1.5, 1.0], seconds=2.0)
    steady = told(loss=loss, step_seconds=history([2.0] * 4))
    assert events(steady) == []
    paused = [*loss[:2], *(point._replace(time=point.time + 600) for point in loss[2:])]
    (event,) = events(told(loss=paused, step_seconds=history([2.0] * 4)))
    assert (event.step, event.kind) == (10, "resumed") and "10m00s" in event.text


def test_warnings_are_those_that_the_training_itself_gave() -> None:
    fine, alike = history([0.6] * 4), history([0.9999] * 4)
    assert events(told(health__cosine_of_random_pairs=fine)) == []
    (event,) = events(told(health__cosine_of_random_pairs=alike))
    assert (event.step, event.kind) == (10, "warning") and "vectors" in event.text, "the first fifth is left out"
    (event,) = events(told(loss=history([3.0, math.nan, math.nan, 1.0])))
    assert (event.step, event.kind) == (10, "warning") and "loss" in event.text


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


@pytest.mark.parametrize("most", [8, 25, 40])
def test_points_are_spread_over_the_whole_curve(most: int) -> None:
    found = thin([MetricPoint(step, (step % 7) / 7, 0.0) for step in range(10_000)], most)
    gaps = [later.step - earlier.step for earlier, later in pairwise(found)]
    assert max(gaps) <= 2 * 10_000 / ((most - 2) // 2)
