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

COVERING = 20.0
"""Distance that a label on a line of the background is as bad as."""

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
    labels: Sequence[WantedLabel],
    obstacles: Sequence[LabelBox],
    frame: LabelBox,
    background: Sequence[LabelBox] = (),
) -> list[LabelBox | None]:
    """A box for each label, in its order: within the frame, over no obstacle and over no other box. None where there is
    no room. The first labels have the first choice. The background is covered only if that is much nearer.
    """
    taken: list[LabelBox] = []
    found: list[LabelBox | None] = []
    for label in labels:
        best, lowest = None, math.inf
        for distance, box in _boxes(label):
            if distance < lowest and box.within(frame) and not _hit(box, itertools.chain(obstacles, taken)):
                fines = CROSSING * _crossed(label, box, [*taken, *obstacles])
                cost = distance + fines + COVERING * sum(box.overlaps(line) for line in background)
                best, lowest = (box, cost) if cost < lowest else (best, lowest)
        found.append(best)
        if best is not None:
            taken.append(best)
    return found


def _boxes(label: WantedLabel) -> Iterator[tuple[float, LabelBox]]:
    """Places for a label, the nearest first, each with its distance."""
    for distance, angle in itertools.product(DISTANCES, DIRECTIONS):
        across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        # Above or below; else wholly to the right or to the left, since the point's error bar is upright.
        side = 0.0 if abs(across) < 1e-3 else math.copysign(1, across)
        x = label.x + distance * across + (side - 1) / 2 * label.width
        y = label.y + distance * down + (down - 1) / 2 * label.height
        yield distance, LabelBox(x, y, x + label.width, y + label.height)


def _hit(box: LabelBox, others: Iterable[LabelBox]) -> bool:
    return any(box.overlaps(other) for other in others)


def _crossed(label: WantedLabel, box: LabelBox, others: Iterable[LabelBox]) -> int:
    """Number of things, other than the label's own point, that the leader line to the label crosses."""
    x, y = box.nearest(label.x, label.y)
    own = LabelBox(label.x - 1, label.y - 1, label.x + 1, label.y + 1)
    line = [
        LabelBox(label.x + part * (x - label.x), label.y + part * (y - label.y), *_after(label, x, y, part))
        for part in (step / STEPS for step in range(1, STEPS))
    ]
    return sum(any(other.overlaps(point) for point in line) for other in others if not other.overlaps(own))


def _after(label: WantedLabel, x: float, y: float, part: float) -> tuple[float, float]:
    """Right and bottom of a point on the leader line, a hair wide so that it can overlap."""
    return label.x + part * (x - label.x) + 0.01, label.y + part * (y - label.y) + 0.01
