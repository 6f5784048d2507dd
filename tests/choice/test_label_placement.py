"""Labels cover nothing, whatever the points."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midmask.choice.label_placement import LabelBox, WantedLabel, place_labels

FRAME = LabelBox(0, 0, 400, 300)
POINTS = st.lists(st.tuples(st.floats(0, 400), st.floats(0, 300), st.floats(5, 150)), max_size=14)


@given(POINTS)
def test_no_label_covers_another_a_point_or_the_frame(points: list[tuple[float, float, float]]) -> None:
    labels = [WantedLabel(x, y, width, 14) for x, y, width in points]
    marks = [LabelBox(x - 5, y - 5, x + 5, y + 5) for x, y, _ in points]
    found = place_labels(labels, marks, FRAME)
    assert len(found) == len(labels)
    boxes = [box for box in found if box is not None]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert not any(box.overlaps(mark) for box in boxes for mark in marks)
    assert all(box.left >= 0 and box.top >= 0 and box.right <= 400 and box.bottom <= 300 for box in boxes)
    for box, label in zip(found, labels, strict=True):
        if box is not None:
            assert (abs(box.right - box.left - label.width), abs(box.bottom - box.top - 14)) < (1e-6, 1e-6)


def test_twelve_points_on_a_diagonal_all_have_labels() -> None:
    points = [(30 + 30 * i, 20 + 22 * i) for i in range(12)]
    labels = [WantedLabel(x, y, 90, 14) for x, y in points]
    marks = [LabelBox(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    assert None not in place_labels(labels, marks, FRAME)


def test_where_there_is_no_room_there_is_no_label() -> None:
    (alone,) = place_labels([WantedLabel(100, 100, 50, 14)], [LabelBox(95, 95, 105, 105)], FRAME)
    assert alone == pytest.approx((109, 93, 159, 107)), "to the right of its point"
    (forced,) = place_labels([WantedLabel(100, 100, 50, 14)], [], FRAME, [FRAME])
    assert forced == alone, "the background is covered for lack of anything else"
    assert place_labels([WantedLabel(100, 100, 500, 14)], [], FRAME) == [None]
    assert place_labels([WantedLabel(100, 100, 50, 14)], [FRAME], FRAME) == [None]


def test_a_long_label_stands_beside_its_bar_and_not_on_the_line_that_goes_on_from_its_point() -> None:
    bar, line = LabelBox(97, 20, 103, 280), LabelBox(100, 149, 400, 151)
    (found,) = place_labels([WantedLabel(100, 150, 250, 14)], [bar], FRAME, [line])
    assert found is not None and not found.overlaps(line) and not found.overlaps(bar)
