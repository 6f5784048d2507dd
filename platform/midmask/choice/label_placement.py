"""Labels beside points so that none covers another, a point or an error bar."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

DISTANCES = (9.0, 14.0, 22.0, 34.0, 50.0, 72.0, 100.0, 140.0)
"""From a point to the nearest corner or edge of its label, in the picture's units; tried in this order."""

DIRECTIONS = (0, -30, 30, 180, -150, 150, -60, 60, -120, 120, -90, 90)
"""Degrees, clockwise since y points down: right first, then left, above and below."""

CROSSING = 40.0
"""Distance that a leader line through a label or a point is as bad as."""

STEPS = 12
"""Points of a leader line that are looked at."""


class LabelBox(NamedTuple):
    """A rectangle; y points down."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "LabelBox") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: "LabelBox") -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the rectangle that is nearest to this one."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


class WantedLabel(NamedTuple):
    """A label's point and its size."""

    x: float
    y: float
    width: float
    height: float


def place_labels(
    labels: Sequence[WantedLabel], obstacles: Sequence[LabelBox], frame: LabelBox
) -> list[LabelBox | None]:
    """A box for each label, in its order: within the frame, over no obstacle and over no other box. None where there is
    no room. The first labels have the first choice.
    """
    taken: list[LabelBox] = []
    found: list[LabelBox | None] = []
    for label in labels:
        free = [box for box in _boxes(label) if box.within(frame) and not _hit(box, itertools.chain(obstacles, taken))]
        best = min(free, key=lambda box: _cost(label, box, taken, obstacles), default=None)
        found.append(best)
        if best is not None:
            taken.append(best)
    return found


def _boxes(label: WantedLabel) -> Iterator[LabelBox]:
    for distance, angle in itertools.product(DISTANCES, DIRECTIONS):
        across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        x = label.x + distance * across + (across - 1) / 2 * label.width
        y = label.y + distance * down + (down - 1) / 2 * label.height
        yield LabelBox(x, y, x + label.width, y + label.height)


def _hit(box: LabelBox, others: Iterable[LabelBox]) -> bool:
    return any(box.overlaps(other) for other in others)


def _cost(label: WantedLabel, box: LabelBox, taken: Sequence[LabelBox], obstacles: Sequence[LabelBox]) -> float:
    """The length of the leader line, and a fine for each thing it crosses other than its own point's."""
    x, y = box.nearest(label.x, label.y)
    own = LabelBox(label.x - 1, label.y - 1, label.x + 1, label.y + 1)
    line = [
        LabelBox(label.x + part * (x - label.x), label.y + part * (y - label.y), *_after(label, x, y, part))
        for part in (step / STEPS for step in range(1, STEPS))
    ]
    others = [other for other in [*taken, *obstacles] if not other.overlaps(own)]
    crossed = sum(any(other.overlaps(point) for point in line) for other in others)
    return math.hypot(x - label.x, y - label.y) + CROSSING * crossed


def _after(label: WantedLabel, x: float, y: float, part: float) -> tuple[float, float]:
    """Right and bottom of a point on the leader line, a hair wide so that it can overlap."""
    return label.x + part * (x - label.x) + 0.01, label.y + part * (y - label.y) + 0.01
