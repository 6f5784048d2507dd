"""Gain against cost as an SVG picture: a point for each system, its interval, the Pareto front, and labels.

Labels are placed so that none covers another, a point or an error bar.
"""

import itertools
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from midmask.choice.report_text import MINUS, made_interval, readable, signed
from midmask.choice.verdict import SystemEstimate, Verdict
from midmask.core.words import duration
from midmask.evaluation.statistics.ranks import on_front

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
    point_box = LabelBox(label.x - 1, label.y - 1, label.x + 1, label.y + 1)
    line = [
        LabelBox(label.x + part * (x - label.x), label.y + part * (y - label.y), *_after(label, x, y, part))
        for part in (step / STEPS for step in range(1, STEPS))
    ]
    return sum(any(other.overlaps(point) for point in line) for other in others if not other.overlaps(point_box))


def _after(label: WantedLabel, x: float, y: float, part: float) -> tuple[float, float]:
    """Right and bottom of a point on the leader line, a hair wide so that it can overlap."""
    return label.x + part * (x - label.x) + 0.01, label.y + part * (y - label.y) + 0.01


SHORTEST = 1.0
"""Seconds that shorter times count as, since a logarithmic axis has no 0."""

GAP = 12.0
"""Times that are this many times shorter than the next longer one stand before a break of the axis: BM25 takes seconds
where trainings take hours, and the trainings are what the picture is to tell apart.
"""

BREAK = 46.0
"""Width of what stands before the break."""

MINUTE, HOUR, DAY = 60, 3600, 86400
TICKS = (
    *(1, 2, 5, 10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, 2 * DAY, 4 * DAY, 8 * DAY, 16 * DAY, 32 * DAY),
)


@dataclass(frozen=True)
class Canvas:
    """Size of a picture, in its own units; the plot lies within the margins."""

    name: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    font: float
    longest: int  # most characters of a label
    finalists_only: bool  # whether there is room for the finalists alone

    @property
    def plot(self) -> LabelBox:
        return LabelBox(self.left, self.top, self.width - self.right, self.height - self.bottom)


WIDE = Canvas("wide", 900, 460, 58, 16, 40, 52, 13.5, 34, False)
NARROW = Canvas("narrow", 358, 440, 48, 8, 40, 52, 12, 24, True)


@dataclass(frozen=True)
class Axes:
    """Maps values to positions on a canvas: seconds to the right on a logarithmic scale, gains upwards."""

    canvas: Canvas
    before: tuple[float, ...]  # times before a break of the axis, all at one position
    shortest: float
    longest: float
    lowest: float
    highest: float

    def x(self, seconds: float) -> float:
        plot, span = self.canvas.plot, math.log(self.longest / self.shortest)
        if seconds in self.before:
            return plot.left + 0.5 * BREAK
        return self.start + (plot.right - self.start) * math.log(max(seconds, SHORTEST) / self.shortest) / span

    @property
    def start(self) -> float:
        """Where the logarithmic part begins."""
        return self.canvas.plot.left + (BREAK if self.before else 0)

    def y(self, gain: float) -> float:
        """Values beyond the axis are drawn at its end."""
        plot, inside = self.canvas.plot, min(max(gain, self.lowest), self.highest)
        return plot.bottom - (plot.bottom - plot.top) * (inside - self.lowest) / (self.highest - self.lowest)


def drawable(verdict: Verdict) -> list[SystemEstimate]:
    """The systems that have a place in the picture: whose gain and time are finite and whose interval is known."""
    return [
        one
        for one in verdict.systems
        if math.isfinite(one.made_gain) and math.isfinite(one.seconds) and one.made_low <= one.made_high
    ]


def front(verdict: Verdict) -> list[SystemEstimate]:
    """The finalists that no other beats in gain without computing for longer, the fastest first."""
    systems = [one for one in drawable(verdict) if one.finalist]
    kept = on_front([(one.made_gain, one.seconds) for one in systems], ["max", "min"])
    return sorted((one for one, is_on in zip(systems, kept, strict=True) if is_on), key=lambda one: one.seconds)


def picture(verdict: Verdict, canvas: Canvas) -> tuple[str, list[SystemEstimate]]:
    """The SVG element, and the systems whose labels found no room in it. Empty without a system that can be drawn."""
    systems = sorted(drawable(verdict), key=lambda one: _importance(verdict, one))
    if canvas.finalists_only:
        systems = [one for one in systems if one.finalist]
    if not systems:
        return "", []
    axes = _axes(systems, canvas)
    labels = [_wanted(axes, one) for one in systems]
    bars = [_bar(axes, one) for one in systems]
    points = [LabelBox(one.x - 8, one.y - 8, one.x + 8, one.y + 8) for one in labels]
    places = place_labels(labels, [*bars, *points], canvas.plot, _front_boxes(axes, front(verdict)))
    title = f"Measured gain in {verdict.measure} over {verdict.baseline} against computing time"
    shapes = [
        f'<title id="{canvas.name}-title">{_text(title)}</title>',
        f'<desc id="{canvas.name}-desc">{_text(description(verdict))}</desc>',
        *_grid(axes, verdict),
        _front_line(axes, front(verdict)),
        *(_interval(axes, one, _kind(verdict, one)) for one in systems),
        *(_point(axes, verdict, one) for one in systems),
        *(_label(axes, verdict, *each) for each in zip(systems, labels, places, strict=True)),
    ]
    svg = (
        f'<svg class="picture {canvas.name}" role="img" viewBox="0 0 {canvas.width:g} {canvas.height:g}" '
        f'font-size="{canvas.font:g}" aria-labelledby="{canvas.name}-title" '
        f'aria-describedby="{canvas.name}-desc">{"".join(shapes)}</svg>'
    )
    return svg, [one for one, place in zip(systems, places, strict=True) if place is None]


def description(verdict: Verdict) -> str:
    """What the picture shows, in words: each system's gain, interval and time, and who is on the front."""
    lines = [
        f"{one.label}: {signed(one.made_gain)}, {made_interval(verdict, one)}, {duration(one.seconds)}."
        for one in drawable(verdict)
    ]
    return " ".join([*lines, f"On the Pareto front: {', '.join(one.label for one in front(verdict))}."])


def _importance(verdict: Verdict, one: SystemEstimate) -> tuple[bool, bool, bool, int]:
    """The order in which labels choose their places."""
    return one != verdict.recommended, one.label != verdict.baseline, not one.finalist, one.rank


def _kind(verdict: Verdict, one: SystemEstimate) -> str:
    if one == verdict.recommended:
        return "taken"
    if one.label == verdict.baseline:
        return "baseline"
    return "finalist" if one.finalist else "given-up"


def _axes(systems: Sequence[SystemEstimate], canvas: Canvas) -> Axes:
    times = sorted({one.seconds for one in systems})
    breaks = [at for at in range(1, len(times)) if times[at] > GAP * max(times[at - 1], SHORTEST)]
    before = tuple(times[: breaks[0]]) if breaks else ()
    seconds = [max(time, SHORTEST) for time in times if time not in before]
    ends = [end for one in systems for end in (one.made_gain, one.made_low, one.made_high) if math.isfinite(end)]
    lowest, highest = min(0.0, *ends), max(0.0, *ends)
    margin = 0.08 * (highest - lowest) or 0.01
    spread = max((max(seconds) / min(seconds)) ** 0.12, 1.25)
    return Axes(canvas, before, min(seconds) / spread, max(seconds) * spread, lowest - margin, highest + margin)


def _grid(axes: Axes, verdict: Verdict) -> list[str]:
    """Lines, numbers and names of both axes."""
    plot, shapes = axes.canvas.plot, []
    for value, digits in gain_ticks(axes.lowest, axes.highest):
        at, kind = axes.y(value), "zero" if value == 0 else "grid"
        number = f"{value:+.{digits}f}".replace("-", MINUS) if value else "0"
        shapes.append(f'<line class="{kind}" x1="{plot.left:.1f}" x2="{plot.right:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>')
        shapes.append(f'<text class="tick" x="{plot.left - 8:.1f}" y="{at + 4:.1f}" text-anchor="end">{number}</text>')
    if axes.before:
        at, shown = axes.x(axes.before[0]), duration(axes.before[-1]).replace("under ", "< ")
        place = f'x="{at:.1f}" y="{plot.bottom + 20:.1f}" text-anchor="middle"'
        shapes.append(f'<text class="tick" {place}>{_text(shown if len(axes.before) == 1 else f"≤ {shown}")}</text>')
        broken = f"M{axes.start - 2:.1f} {plot.bottom + 8:.1f}l5 -12m4 0l-5 12"
        shapes.append(f'<path class="break" d="{broken}"/>')
    for seconds in time_ticks(axes, 4.6 * axes.canvas.font):
        at = axes.x(seconds)
        shapes.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{plot.bottom:.1f}" y2="{plot.bottom + 5:.1f}"/>'
        )
        place = f'x="{at:.1f}" y="{plot.bottom + 20:.1f}" text-anchor="middle"'
        shapes.append(f'<text class="tick" {place}>{duration(seconds)}</text>')
    vertical = _cut(
        f"Measured gain in {verdict.measure} over {verdict.baseline}", int(plot.right / axes.canvas.font / 0.55)
    )
    return [
        *shapes,
        f'<text class="axis" x="0" y="{axes.canvas.font + 2:.1f}">{_text(vertical)}</text>',
        f'<text class="axis" x="{plot.right:.1f}" y="{axes.canvas.height - 8:.1f}" text-anchor="end">'
        "Computing time, logarithmic</text>",
    ]


def gain_ticks(lowest: float, highest: float) -> list[tuple[float, int]]:
    """Round values from lowest to highest, two to eight of them, and the decimals that they are printed with."""
    rough = (highest - lowest) / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(lowest / step - 1e-9), math.floor(highest / step + 1e-9)
    return [(round(number * step, 12), digits) for number in range(first, last + 1)]


def time_ticks(axes: Axes, apart: float) -> list[float]:
    """Times on the axis that people name, at least `apart` units from each other."""
    kept: list[float] = []
    for seconds in TICKS:
        if axes.shortest <= seconds <= axes.longest and (not kept or axes.x(seconds) - axes.x(kept[-1]) >= apart):
            kept.append(seconds)
    return kept


def _front_line(axes: Axes, systems: Sequence[SystemEstimate]) -> str:
    """A staircase: the largest gain for at most so much computing."""
    if len(systems) < 2:
        return ""
    path = f"M{axes.x(systems[0].seconds):.1f} {axes.y(systems[0].made_gain):.1f}"
    path += "".join(f"H{axes.x(one.seconds):.1f}V{axes.y(one.made_gain):.1f}" for one in systems[1:])
    return f'<path class="front" d="{path}H{axes.canvas.plot.right:.1f}"/>'


def _front_boxes(axes: Axes, systems: Sequence[SystemEstimate]) -> list[LabelBox]:
    """The parts of the staircase, and the line of no gain."""
    plot = axes.canvas.plot
    ends = [*(axes.x(one.seconds) for one in systems[1:]), plot.right]
    found = [LabelBox(plot.left, axes.y(0) - 1, plot.right, axes.y(0) + 1)]
    for one, end in zip(systems, ends, strict=False):
        found.append(LabelBox(axes.x(one.seconds), axes.y(one.made_gain) - 1, end, axes.y(one.made_gain) + 1))
    for one, after in itertools.pairwise(systems):
        x = axes.x(after.seconds)
        found.append(LabelBox(x - 1, axes.y(after.made_gain), x + 1, axes.y(one.made_gain)))
    return found


def _interval(axes: Axes, one: SystemEstimate, kind: str) -> str:
    bar = _bar(axes, one)
    return f'<line class="bar {kind}" x1="{axes.x(one.seconds):.1f}" x2="{axes.x(one.seconds):.1f}" ' + (
        f'y1="{bar.top:.1f}" y2="{bar.bottom:.1f}"/>'
    )


def _bar(axes: Axes, one: SystemEstimate) -> LabelBox:
    at = axes.x(one.seconds)
    return LabelBox(at - 3, axes.y(one.made_high), at + 3, axes.y(one.made_low))


def _point(axes: Axes, verdict: Verdict, one: SystemEstimate) -> str:
    x, y, kind = axes.x(one.seconds), axes.y(one.made_gain), _kind(verdict, one)
    told = f"{one.label}: {signed(one.made_gain)} ({made_interval(verdict, one)}), {duration(one.seconds)}"
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if kind == "taken" else 5}"/>'
    if kind == "baseline":
        shape = f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    return f'<g class="point {kind}"><title>{_text(told)}</title>{shape}</g>'


def _wanted(axes: Axes, one: SystemEstimate) -> WantedLabel:
    text = _cut(one.label, axes.canvas.longest)
    size = axes.canvas.font * text_width(text)
    return WantedLabel(axes.x(one.seconds), axes.y(one.made_gain), size, 1.3 * axes.canvas.font)


def _label(axes: Axes, verdict: Verdict, one: SystemEstimate, wanted: WantedLabel, place: LabelBox | None) -> str:
    if place is None:
        return ""
    x, y = place.nearest(wanted.x, wanted.y)
    leader = ""
    if math.hypot(x - wanted.x, y - wanted.y) > 16:
        leader = f'<line class="leader" x1="{wanted.x:.1f}" y1="{wanted.y:.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'
    anchor, at = ("start", place.left) if place.left >= wanted.x else ("end", place.right)
    if place.left < wanted.x < place.right:
        anchor, at = "middle", (place.left + place.right) / 2
    where = f'x="{at:.1f}" y="{place.bottom - 0.3 * axes.canvas.font:.1f}" text-anchor="{anchor}"'
    text = _text(_cut(one.label, axes.canvas.longest))
    return f'{leader}<text class="label {_kind(verdict, one)}" {where}>{text}</text>'


def text_width(text: str) -> float:
    """The width that a text needs at most, in font sizes: no font is asked, so wide characters count as 1.1."""
    return 0.62 * len(text) + 0.48 * sum(
        unicodedata.east_asian_width(each) in "WF" or unicodedata.category(each) == "So" for each in text
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _text(value: str) -> str:
    return escape(readable(value))
